// Command echo writes what it reads. It runs in sandboxes of an image that has no other program for that. With the
// argument serve, it answers HTTP requests on 127.0.0.1:8080 with their bodies.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	run := func() error {
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	}
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		run = serve
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func serve() error {
	server := &http.Server{Addr: "127.0.0.1:8080", ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1.1 has it
			_, _ = io.Copy(w, r.Body)                            // the client sees what is missing
		})}
	return server.ListenAndServe()
}
