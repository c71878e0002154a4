package wire

// MaxShellState bounds what is told of a command line's state, as JSON, in bytes: it is a part of the result
// frame.
const MaxShellState = 48 << 10

// ShellState is what a command line has left behind, as against what it began with.
type ShellState struct {
	// Cwd is the directory that it ended in, "" when that is not one that a command may begin in; then
	// Outside names it.
	Cwd     string `json:"cwd,omitempty"`
	Outside string `json:"outside,omitempty"`
	// Set are the variables that it exported, with another value or anew; Unset are those that it took away.
	Set   map[string]string `json:"set,omitempty"`
	Unset []string          `json:"unset,omitempty"`
	// Problem is why there is nothing of all this, "" when that is not so.
	Problem string `json:"problem,omitempty"`
}
