package wire

// MaxShellState limits the reported state of a shell line, as JSON, in bytes: it is part of the result frame.
const MaxShellState = 48 << 10

// ShellState is what a shell line changed, compared with the state before it.
type ShellState struct {
	// Cwd is the directory in which it ended, "" if no command may start there. Then Outside names it.
	Cwd     string `json:"cwd,omitempty"`
	Outside string `json:"outside,omitempty"`
	// Set are the variables that it exported, new or changed. Unset are those that it removed.
	Set   map[string]string `json:"set,omitempty"`
	Unset []string          `json:"unset,omitempty"`
	// Problem says why the state could not be read, "" if it could.
	Problem string `json:"problem,omitempty"`
}
