package main

import (
	"container/list"
	"slices"
	"sync"
)

// Bounds of what the agent remembers.
const (
	maxSessions = 100
	maxTurns    = 40
)

// turn is one message of a conversation.
type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// sessions keeps the latest conversations in memory.
type sessions struct {
	mu    sync.Mutex // guards the fields below
	turns map[string][]turn
	used  *list.List // names, the latest first
	place map[string]*list.Element
}

func newSessions() *sessions {
	return &sessions{turns: map[string][]turn{}, used: list.New(), place: map[string]*list.Element{}}
}

// get returns a copy of a conversation; a new one is empty.
func (s *sessions) get(name string) []turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.turns[name])
}

// put stores a conversation. If there are too many, it drops the one that was stored longest ago.
func (s *sessions) put(name string, turns []turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns[name] = turns[max(0, len(turns)-maxTurns):]
	if at, ok := s.place[name]; ok {
		s.used.MoveToFront(at)
		return
	}
	s.place[name] = s.used.PushFront(name)
	if s.used.Len() > maxSessions {
		oldest := s.used.Remove(s.used.Back()).(string) //nolint:forcetypeassert // only names are pushed
		delete(s.turns, oldest)
		delete(s.place, oldest)
	}
}
