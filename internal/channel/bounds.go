package channel

import "time"

// The limits of the protocol. PROTOCOL.md explains each. Other implementations of a guest must respect them.
const (
	// maxHello is the JSON text of a hello, in bytes.
	maxHello = 4 << 10
	// maxData is the payload of one data frame, in bytes; maxFrame bounds the length field of every frame.
	maxData  = 64 << 10
	maxFrame = maxData + offsetSize
	// maxBye is the size of the reason in a bye frame, in bytes.
	maxBye = 1 << 10
	// maxUnacknowledged is the resend buffer of one direction, in bytes. A full one blocks senders of
	// requests, input and output. Each may then still send one piece, and the multiplexer adds its own
	// frames; more than maxBacklog ends the session.
	maxUnacknowledged = 1 << 20
	maxBacklog        = maxUnacknowledged + 2*maxStreams*maxMuxData
	// maxMuxData is the payload of a data frame of the multiplexer, in bytes.
	maxMuxData = 64 << 10
	// ackEvery is the number of received bytes after which a receiver acknowledges them.
	ackEvery = 32 << 10
	// maxRequest is the JSON text of a Request, in bytes: twice Linux's limit of arguments and environment.
	maxRequest = 4 << 20
	// maxInput is the payload of one input frame, in bytes.
	maxInput = 64 << 10
	// maxID is a Request.ID, in bytes.
	maxID = 256
	// maxMessage is the Message of a Result, in bytes.
	maxMessage = 8 << 10
	// maxCalls limits a client's concurrent operations in its session; further calls wait. The guest answers
	// surplus operations with a problem, and ends a session with more than maxStreams streams.
	maxCalls   = 128
	maxStreams = 256
	// maxSessions limits a guest's sessions. The one heard from least recently makes room for another.
	maxSessions = 16
)

// The times of the protocol.
const (
	// helloLimit is the time from the first byte of a hello to the end of its answer.
	helloLimit = 10 * time.Second
	// byeLimit is a closing client's time for its last frame.
	byeLimit = time.Second
	// defaultDetached is how long a guest keeps a session without a carrier.
	defaultDetached = 10 * time.Minute
	// See ClientConfig for defaultHeartbeat and defaultSilence.
	defaultHeartbeat = 5 * time.Second
	defaultSilence   = 15 * time.Second
	// See Backoff for defaultRedialMin and defaultRedialMax.
	defaultRedialMin = 50 * time.Millisecond
	defaultRedialMax = 5 * time.Second
	// streamCloseLimit is how long a client accepts data of a stream that it has closed.
	streamCloseLimit = 10 * time.Second
	// never is a timeout that never fires: a frozen guest may thaw at any time.
	never = time.Duration(1 << 62)
)
