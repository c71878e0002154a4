// Package sessions keeps sessions of sandboxes: what the commands of one have in common, and the recording of what they
// read and wrote. Package commands runs the commands.
//
// # Life of a session
//
// A session is a row of a sandbox, with variables (sealed), a directory and a recording; no process lives for
// it. A command of a session is a command like any other: the transaction that begins it sees that no other
// one runs there, and takes the row's variables and directory; the one that settles it keeps in the row what a
// line of the shell has left behind, as against what the line began with. What it reads of the command, its
// holder appends to the recording, every 50 ms at the most, while it is the holder; the rest with the settling.
// So a recording has a beginning of each stream, whose length the ledger knows: a process that takes the command over
// follows it from its beginning and leaves out as much.
package sessions
