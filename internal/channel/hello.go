package channel

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// magic starts each hello, in both directions and in every version of the protocol.
const magic = "SBXCHAN\n"

// versions is a range of protocol versions, inclusive.
type versions struct{ Min, Max int }

// spoken is the range that this release supports.
var spoken = versions{Min: 1, Max: 1}

func (v versions) String() string {
	if v.Min == v.Max {
		return fmt.Sprintf("version %d", v.Min)
	}
	return fmt.Sprintf("versions %d to %d", v.Min, v.Max)
}

// common returns the highest version in both ranges, or 0.
func (v versions) common(w versions) int {
	highest := min(v.Max, w.Max)
	if highest < v.Min || highest < w.Min || highest < 1 {
		return 0
	}
	return highest
}

// clientHello is the first message on a carrier. Fields are added, never changed. A reader ignores unknown
// ones.
type clientHello struct {
	Min int `json:"min"`
	Max int `json:"max"`
	// Session has 32 random hexadecimal digits, chosen by the client.
	Session string `json:"session,omitempty"`
	// Attempt grows with each carrier of a session. It distinguishes a late carrier from the latest.
	Attempt uint64 `json:"attempt,omitempty"`
	// Resume: the guest already knew the session. If it no longer does, it must not begin the session again.
	Resume bool `json:"resume,omitempty"`
	// Received counts the bytes of the session that the client has received.
	Received int64 `json:"received,omitempty"`
	// Client names the client and its release, for logs.
	Client string `json:"client,omitempty"`
	// Shutdown asks to end the sandbox. The carrier then has no session.
	Shutdown *Request `json:"shutdown,omitempty"`
}

// guestHello is the answer.
type guestHello struct {
	// Version is the version to use, 0 if there is none in common.
	Version int `json:"version"`
	Min     int `json:"min"`
	Max     int `json:"max"`
	// Release is the guest's, for logs. Boot changes when the guest restarts, which ends all sessions.
	Release string `json:"release,omitempty"`
	Boot    string `json:"boot,omitempty"`
	// Life changes when the sandbox restarts, which forgets all commands.
	Life string `json:"life,omitempty"`
	// Known is false if a session to resume is gone.
	Known bool `json:"known,omitempty"`
	// Received counts the bytes of the session that the guest has received.
	Received int64 `json:"received,omitempty"`
	// Refused says why the carrier is refused although version and session are valid.
	Refused string `json:"refused,omitempty"`
}

func writeHello(w io.Writer, hello any) error {
	text, err := json.Marshal(hello)
	if err != nil {
		return err
	}
	if len(text) > maxHello {
		return fmt.Errorf("the hello has %d bytes, at most %d are allowed", len(text), maxHello)
	}
	b := make([]byte, 0, len(magic)+4+len(text))
	b = binary.BigEndian.AppendUint32(append(b, magic...), uint32(len(text)))
	_, err = w.Write(append(b, text...))
	return err
}

// readHello reads exactly one hello.
func readHello(r io.Reader, hello any) error {
	var head [len(magic) + 4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("read the hello: %w", err)
	}
	if string(head[:len(magic)]) != magic {
		return errors.New("read the hello: the other side speaks another protocol")
	}
	size := binary.BigEndian.Uint32(head[len(magic):])
	if size > maxHello {
		return fmt.Errorf("read the hello: it claims %d bytes, at most %d are allowed", size, maxHello)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return fmt.Errorf("read the hello: %w", err)
	}
	if err := json.Unmarshal(text, hello); err != nil {
		return fmt.Errorf("read the hello: %w", err)
	}
	return nil
}

// validSession reports whether an id has a valid form.
func validSession(id string) bool {
	if len(id) != 32 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
