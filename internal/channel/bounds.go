package channel

import "time"

// The bounds of the protocol. PROTOCOL.md explains each; a guest of another make must keep to them.
const (
	// maxHello is the JSON text of a hello, in bytes.
	maxHello = 4 << 10
	// maxData is the payload of one data frame, in bytes; maxFrame bounds the length field of every frame.
	maxData  = 64 << 10
	maxFrame = maxData + offsetSize
	// maxBye is the reason in a bye frame, in bytes.
	maxBye = 1 << 10
	// maxUnacknowledged is the resend buffer of one direction, in bytes. A full one stops the senders of requests, input and
	// output. Each may have one piece under way then, and the multiplexer adds frames of its own: more than maxBacklog
	// ends the session.
	maxUnacknowledged = 1 << 20
	maxBacklog        = maxUnacknowledged + 2*maxStreams*maxMuxData
	// maxMuxData is the payload of a data frame of the multiplexer, in bytes.
	maxMuxData = 64 << 10
	// ackEvery is the number of bytes that a receiver takes before it acknowledges them unasked.
	ackEvery = 8 << 10
	// maxRequest is the JSON text of a Request, in bytes: twice what Linux takes as arguments and environment.
	maxRequest = 4 << 20
	// maxInput is the payload of one input frame, in bytes.
	maxInput = 64 << 10
	// maxID is a Request.ID, in bytes.
	maxID = 256
	// maxMessage is the Message of a Result, in bytes.
	maxMessage = 8 << 10
	// maxCalls is how many operations a client has under way in its session; further calls wait. The guest answers more
	// with a problem, and ends a session with more than maxStreams streams.
	maxCalls   = 128
	maxStreams = 256
	// maxSessions is how many sessions a guest keeps. The one that it heard of least recently makes room for another.
	maxSessions = 16
)

// The times of the protocol.
const (
	// helloLimit is from the first byte of a hello to the end of its answer.
	helloLimit = 10 * time.Second
	// byeLimit is what a closing client gives its last frame.
	byeLimit = time.Second
	// defaultDetached is how long a guest keeps a session that has no carrier.
	defaultDetached = 10 * time.Minute
	// defaultHeartbeat and defaultSilence are documented with ClientConfig.
	defaultHeartbeat = 5 * time.Second
	defaultSilence   = 15 * time.Second
	// defaultRedialMin and defaultRedialMax are documented with Backoff.
	defaultRedialMin = 50 * time.Millisecond
	defaultRedialMax = 5 * time.Second
	// streamCloseLimit is how long a client keeps what a guest still sends to a stream that the client has closed.
	streamCloseLimit = 10 * time.Second
	// never is a timeout that does not fire: a frozen guest may thaw after any time.
	never = time.Duration(1 << 62)
)
