// Command webhook ends a game.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: webhook ENVIRONMENT")
	}
	receipt, err := finish(context.Background(), os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, %d leases ended\n", receipt.Status, receipt.Matched)
}

func finish(ctx context.Context, environment string) (sandbox.Receipt, error) {
	secret, err := webhook.ParseSecret(os.Getenv("SANDBOX_WEBHOOK_SECRET"))
	if err != nil {
		return sandbox.Receipt{}, err
	}
	// The client repeats a message that may be lost, with the same id: it takes effect once.
	c, err := client.New(client.Config{
		URL: os.Getenv("SANDBOX_RECONCILER_URL"),
		Sign: func(h http.Header, id string, body []byte) error {
			return secret.Sign(h, id, time.Now(), body)
		},
	})
	if err != nil {
		return sandbox.Receipt{}, err
	}
	defer func() { _ = c.Close() }()
	return c.Deliver(ctx, sandbox.Delivery{
		ID: "msg_" + rand.Text(),
		Condition: sandbox.Condition{
			Type:      "game.finished",
			Timestamp: time.Now(),
			Data:      sandbox.ConditionData{EnvironmentID: environment},
		},
	})
}
