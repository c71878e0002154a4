package reconciler

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/stream"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/pipetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
)

// follow answers with a stream without an end.
func follow(w http.ResponseWriter, r *http.Request) {
	ctx, out := stream.Open(w, r, stream.Config{KeepAlive: time.Hour, Timeout: time.Hour}, wire.EventStream, stream.Line("\n"))
	defer out.Close()
	if out.Send([]byte(": following\n\n")) == nil {
		<-ctx.Done()
	}
}

// work answers with 200 after a time, and with 503 if it is cancelled.
func work(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.PathValue("time"))
	if err != nil {
		panic(err)
	}
	select {
	case <-time.After(d):
	case <-r.Context().Done():
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func TestAShutdownGivesStreamsLessTimeThanOtherRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := http.NewServeMux()
		handler.HandleFunc("/follow", follow)
		handler.HandleFunc("/work/{time}", work)
		s, listener := newServer(t.Context(), handler, slog.New(slog.DiscardHandler)), pipetest.Listen(t)
		served := make(chan error, 1)
		go func() { served <- s.Serve(listener) }()
		ended := make(chan string, 3)
		began := time.Now()
		for _, path := range []string{"/follow", "/work/7s", "/work/1h"} {
			conn := listener.Dial("192.0.2.7:1")
			go func() {
				_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
				answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					ended <- err.Error()
					return
				}
				_, err = io.Copy(io.Discard, answer.Body)
				ended <- fmt.Sprint(path, " ", answer.StatusCode, " after ", time.Since(began), " ", err)
			}()
		}
		synctest.Wait()
		if err := s.shutDown(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		for _, want := range []string{"/follow 200 after 5s <nil>", "/work/7s 200 after 7s <nil>", "/work/1h 503 after 10s <nil>"} {
			if got := <-ended; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
}
