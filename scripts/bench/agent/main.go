// Command agent answers HTTP requests on 127.0.0.1:8080 with their bodies. It runs in a sandbox.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	server := &http.Server{Addr: "127.0.0.1:8080", ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1.1 supports it
			_, _ = io.Copy(w, r.Body)                            // the client detects a short answer
		})}
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}
