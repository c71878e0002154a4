// Package sessions keeps sessions of sandboxes: the state that the commands of a session share, and the recording of
// their input and output. Package commands runs the commands.
//
// # Life of a session
//
// A session is a row of a sandbox, with variables (encrypted), a directory and a recording. It has no process. A
// command of a session is a command like any other. The transaction that begins it checks that no other one runs in the
// session, and reads the row's variables and directory. The transaction that settles it stores in the row what a line
// of the shell changed. While the command runs, its holder appends its output to the recording, at most every 50 ms,
// and the rest when it settles. So the recording has a prefix of each stream, and the ledger knows its length: a
// process that takes the command over follows it from its beginning and skips that prefix.
package sessions
