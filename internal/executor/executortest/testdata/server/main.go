// Command server listens on 127.0.0.1, on the port in its first argument. The second argument names what it does with
// each connection.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

func main() {
	serve := map[string]func(net.Conn){
		"echo": func(c net.Conn) { _, _ = io.Copy(c, c) },
		"count": func(c net.Conn) { // answers once its peer has ended
			n, err := io.Copy(io.Discard, c)
			fmt.Fprintf(c, "%d %v", n, err)
		},
		"flood": func(c net.Conn) {
			for piece := make([]byte, 1<<20); ; {
				if _, err := c.Write(piece); err != nil {
					return
				}
			}
		},
		"deaf": func(net.Conn) { time.Sleep(time.Hour) },
		"exit": func(c net.Conn) {
			fmt.Fprint(c, "bye")
			os.Exit(0)
		},
		"reset": func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) },
	}[os.Args[2]]
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		panic(err)
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			serve(conn)
			_ = conn.Close()
		}()
	}
}
