// Command reacher requests an address, through the proxy that its variables name, if any. It prints "reached STATUS
// BODY" or "blocked: WHY". With -verify it rejects hosts whose certificate no authority of its variables signed.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	args := os.Args[1:]
	verify := args[0] == "-verify"
	if verify {
		args = args[1:]
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{InsecureSkipVerify: !verify},
	}}
	res, err := client.Get(args[0])
	if err != nil {
		fmt.Println("blocked:", err)
		return
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 4096))
	switch gateway := res.Header.Get("X-Sandbox-Gateway"); {
	case err != nil:
		fmt.Println("blocked:", err)
	case gateway != "":
		fmt.Println("blocked:", gateway, strings.TrimSpace(string(body)))
	default:
		fmt.Println("reached", res.StatusCode, strings.TrimSpace(string(body)))
	}
}
