package reconciler

import (
	"os"
	"slices"
	"time"
)

// watchEvery is how often files of credentials are looked at.
const watchEvery = time.Second

// fileState tells one content of a file from another, but for a change within its clock's step that keeps the
// size. It is zero where there is no file.
type fileState struct {
	at   time.Time
	size int64
}

func stateOf(file string) fileState {
	info, err := os.Stat(file)
	if err != nil {
		return fileState{}
	}
	return fileState{info.ModTime(), info.Size()}
}

// watch tells when files have changed. It is used by one goroutine.
type watch struct {
	files      []string
	read, last []fileState
}

// watchFiles begins to watch files that are about to be read.
func watchFiles(files ...string) *watch {
	w := &watch{files: files}
	w.read = w.look()
	w.last = w.read
	return w
}

func (w *watch) look() []fileState {
	states := make([]fileState, len(w.files))
	for i, file := range w.files {
		states[i] = stateOf(file)
	}
	return states
}

// changed reports, once for each change, that files have changed and were the same at two looks since: one that
// is being written is not read.
func (w *watch) changed() bool {
	now := w.look()
	settled := slices.Equal(now, w.last)
	w.last = now
	if !settled || slices.Equal(now, w.read) {
		return false
	}
	w.read = now
	return true
}
