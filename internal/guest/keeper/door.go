//go:build linux

package keeper

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/port"
)

// door is the port for the reconciler, with its key. Process 1 keeps it open, so that no other program can
// listen there while no broker runs.
type door struct {
	listener *os.File
	key      port.Key
}

// openDoor takes the key from the environment and listens. At that time no sandbox code runs.
func openDoor(number int) (*door, error) {
	text := os.Getenv(guest.PortKey)
	if err := forget(text); err != nil { // other users cannot read it there anyway
		fmt.Fprintln(os.Stderr, "keeper: overwrite the key of the port:", err)
	}
	d := &door{}
	if n, err := hex.Decode(d.key[:], []byte(text)); err != nil || n != len(d.key) {
		return nil, fmt.Errorf("the variable %s has no key of %d bytes in hexadecimal", guest.PortKey, len(d.key))
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{Port: number})
	if err != nil {
		return nil, fmt.Errorf("listen for the reconciler: %w", err)
	}
	d.listener, err = l.File()
	return d, errors.Join(err, l.Close()) // the file continues to listen
}

// forget removes the key from the environment, and overwrites it in /proc/1/environ.
func forget(text string) error {
	if err := os.Unsetenv(guest.PortKey); err != nil || text == "" {
		return err
	}
	environ, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return err
	}
	at := bytes.Index(environ, []byte(guest.PortKey+"="+text))
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil || at < 0 {
		return err
	}
	const envStart = 50 - 3 // index of the field after the second; proc(5) counts from 1
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= envStart {
		return errors.New("/proc/self/stat does not contain the address of the environment")
	}
	begin, err := strconv.ParseInt(string(fields[envStart]), 10, 64)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	value := begin + int64(at+len(guest.PortKey)+1)
	_, err = memory.WriteAt(bytes.Repeat([]byte("0"), len(text)), value)
	return errors.Join(err, memory.Close())
}

// handKey returns a pipe that holds the key.
func (d *door) handKey() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = w.Write(d.key[:]) // it fits into the pipe's buffer
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}
