// Package channel is the protocol between this program and process 1 of a sandbox. It knows no backend: any
// bidirectional byte stream can carry it. PROTOCOL.md describes it.
//
//	carrier   a connection that may break at any time and is dialed again
//	session   one client and one guest; it outlives its carriers, and loses and repeats no byte
//	stream    one operation of a session
//	operation a Request, its input and output, and a wire.Result
//
// The client makes requests, and the guest only answers. If a guest opens a stream, it is hostile, and its
// session ends.
package channel
