//go:build linux

package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/keeper"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/port"
)

// listen accepts connections on the port that process 1 has opened, until ctx ends.
func (b *broker) listen(ctx context.Context, server *channel.Server, serving *sync.WaitGroup) error {
	var key port.Key
	pipe := os.NewFile(keeper.KeyDescriptor, "key")
	_, err := io.ReadFull(pipe, key[:])
	if err = errors.Join(err, pipe.Close()); err != nil {
		return fmt.Errorf("read the key of the port: %w", err)
	}
	file := os.NewFile(keeper.PortDescriptor, "port")
	l, err := net.FileListener(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("take over the port: %w", err)
	}
	serving.Go(func() {
		// The broker ends with its link to process 1. If the listener fails earlier, the kernel refuses connections.
		_ = port.Serve(ctx, l, key, func(ctx context.Context, p port.Purpose, conn net.Conn) {
			if p == port.Operation {
				_ = server.ServeOperation(ctx, conn) // the client sees the broken connection
				return
			}
			_ = server.Serve(ctx, conn) // as above
		})
	})
	return nil
}
