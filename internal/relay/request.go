package relay

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"
	"time"
)

// Paths of the program and its data in the relay's container.
const (
	Path = "/relay"
	Root = "/run/relay"
)

// Names of the relay's sockets, below its root and in a sandbox's directory.
const (
	ControlDir    = "control"
	ControlSocket = "relay.sock"
	ChannelSocket = "channel.sock"
	EndFile       = "end"
	PasswdFile    = "passwd"
	GroupFile     = "group"

	sandboxesDir = "sandboxes"
)

// SandboxDir returns the directory of a sandbox, relative to the relay's root.
func SandboxDir(id string) string { return sandboxesDir + "/" + id }

// MaxAccounts limits each file of Accounts, in bytes.
const MaxAccounts = 32 << 10

// Limits of messages, in bytes. The longest request has two files in base64. The longest answer lists maxSandboxes ids.
const (
	maxRequest = 96 << 10
	maxAnswer  = 1 << 20
)

// maxWait limits how long an attach waits for a sandbox.
const maxWait = 30 * time.Second

type op string

const (
	opAdd    op = "add"
	opRemove op = "remove"
	opEnd    op = "end"
	opAttach op = "attach"
	opList   op = "list"
)

// request is the first message of a connection to the control socket.
type request struct {
	Op op     `json:"op"`
	ID string `json:"id,omitempty"` // for all except list
	// Wait is how long an attach waits for a connection of the sandbox, at most maxWait.
	Wait time.Duration `json:"wait,omitempty"`
	// Lend asks an attach for the descriptor of the sandbox's connection. Only direct clients of the control
	// socket may use it.
	Lend bool `json:"lend,omitempty"`
	// Accounts are sent with add.
	Accounts Accounts `json:"accounts,omitzero"`
}

// Accounts are the files that name a sandbox's users. Empty ones are not created.
type Accounts struct {
	Passwd []byte `json:"passwd,omitempty"`
	Group  []byte `json:"group,omitempty"`
}

// answer is the reply to a request. Nothing follows a problem.
type answer struct {
	Problem   problem  `json:"problem,omitempty"`
	Message   string   `json:"message,omitempty"`
	Sandboxes []string `json:"sandboxes,omitempty"`
	// Lent means that one byte with the descriptor follows. The request's connection stays open while the descriptor is
	// used. Without Lent, the bytes of the carrier follow.
	Lent bool `json:"lent,omitempty"`
}

type problem string

const (
	problemInvalid problem = "invalid"
	problemUnknown problem = "unknown"
	problemAbsent  problem = "absent"
	problemFull    problem = "full"
	problemFailed  problem = "failed"
)

// Errors of a relay that answers. Any other error of a Client means that it did not reach the relay, or that the relay
// ended.
var (
	// ErrRefused is wrapped by the other errors.
	ErrRefused = errors.New("the relay refuses")
	// ErrUnknown means that the sandbox was not added, or was removed.
	ErrUnknown = fmt.Errorf("%w: the sandbox is unknown", ErrRefused)
	// ErrAbsent means that the sandbox did not dial in time.
	ErrAbsent = fmt.Errorf("%w: the sandbox has no waiting connection", ErrRefused)
	// ErrFull means that a limit of the relay is reached.
	ErrFull = fmt.Errorf("%w: it is full", ErrRefused)
)

// asError converts an answer to an error.
func (a answer) asError() error {
	switch a.Problem {
	case "":
		return nil
	case problemUnknown:
		return ErrUnknown
	case problemAbsent:
		return ErrAbsent
	case problemFull:
		return fmt.Errorf("%w: %s", ErrFull, a.Message)
	default:
		return fmt.Errorf("%w: %s: %s", ErrRefused, a.Problem, a.Message)
	}
}

// answerTo converts the result of a request to its answer.
func answerTo(err error) answer {
	switch {
	case err == nil:
		return answer{}
	case errors.Is(err, ErrUnknown):
		return answer{Problem: problemUnknown}
	case errors.Is(err, ErrAbsent):
		return answer{Problem: problemAbsent}
	case errors.Is(err, ErrFull):
		return answer{Problem: problemFull, Message: err.Error()}
	default:
		return answer{Problem: problemFailed, Message: err.Error()}
	}
}

// sandboxID is compiled at its first use, because the guest also contains this package.
var sandboxID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`) })

func (r request) validate() error {
	switch r.Op {
	case opList:
		return nil
	case opAdd, opRemove, opEnd, opAttach:
	default:
		return fmt.Errorf("unknown operation %.32q", r.Op)
	}
	if !sandboxID().MatchString(r.ID) {
		return fmt.Errorf("sandbox id %.80q is not a valid directory name", r.ID)
	}
	if r.Wait < 0 || r.Wait > maxWait {
		return fmt.Errorf("wait must be between 0 and %s, not %s", maxWait, r.Wait)
	}
	if len(r.Accounts.Passwd) > MaxAccounts || len(r.Accounts.Group) > MaxAccounts {
		return fmt.Errorf("passwd and group have %d and %d bytes; at most %d are allowed",
			len(r.Accounts.Passwd), len(r.Accounts.Group), MaxAccounts)
	}
	return nil
}

// readRequest reads exactly one request.
func readRequest(in io.Reader) (request, error) {
	var r request
	if err := readMessage(in, maxRequest, &r); err != nil {
		return r, err
	}
	return r, r.validate()
}

// readMessage reads one message: its length in 4 bytes, big endian, and JSON.
func readMessage(in io.Reader, limit uint32, into any) error {
	var length [4]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > limit {
		return fmt.Errorf("the message has %d bytes; at most %d are allowed", n, limit)
	}
	content := make([]byte, n)
	if _, err := io.ReadFull(in, content); err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

func writeMessage(out io.Writer, message any) error {
	content, err := json.Marshal(message)
	if err != nil {
		return err
	}
	framed := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(content)), uint32(len(content)))
	_, err = out.Write(append(framed, content...))
	return err
}
