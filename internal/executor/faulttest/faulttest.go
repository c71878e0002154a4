// Package faulttest stands between an executor and its backend, for tests, and misbehaves.
package faulttest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"
)

// Fault is what is done to a request in place of passing it on and back. A proxied request is carried out by pass; a
// fault that panics with http.ErrAbortHandler breaks the connection.
type Fault func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc)

// Switch makes whatever it stands before misbehave. Its zero value is honest.
type Switch struct {
	mu    sync.Mutex // guards fault
	fault Fault
}

// Set has it misbehave from now on; nil makes it honest.
func (s *Switch) Set(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Before stands before a proxy.
func (s *Switch) Before(proxy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		f := s.fault
		s.mu.Unlock()
		if f == nil {
			proxy.ServeHTTP(w, r)
			return
		}
		f(w, r, proxy.ServeHTTP)
	})
}

// Down breaks every connection.
func Down(http.ResponseWriter, *http.Request, http.HandlerFunc) { panic(http.ErrAbortHandler) }

// Slow takes its time.
func Slow(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
	time.Sleep(300 * time.Millisecond)
	pass(w, r)
}

// Hung returns a fault that answers nothing until it is healed.
func Hung(healed <-chan struct{}) Fault {
	return func(_ http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
		select {
		case <-healed:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
}

// Error500 carries out nothing, and says so as a Docker Engine does.
func Error500(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = io.WriteString(w, `{"message":"the disk is full"}`) // a client that has gone needs no answer
}

// Truncated passes on half of each answer, and then breaks the connection.
func Truncated(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
	whole := httptest.NewRecorder()
	pass(whole, r)
	w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
	w.Header().Set("Content-Length", strconv.Itoa(whole.Body.Len()+1))
	w.WriteHeader(whole.Code)
	_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2]) // as above
	panic(http.ErrAbortHandler)
}
