package reconciler

import (
	"os"
	"slices"
	"time"
)

// watchEvery is how often the credential files are checked for changes.
const watchEvery = time.Second

// fileState identifies the content of a file. It misses a change that keeps the size within one tick of the file
// system's clock. It is zero for a missing file.
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

// watch detects changes of files. It is not safe for concurrent use.
type watch struct {
	files      []string
	read, last []fileState
}

// watchFiles starts to watch files. Call it before reading them.
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

// changed reports a change once, after two equal checks in a row, so that a file is not read while it is written.
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
