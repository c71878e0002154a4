package webhook_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
)

func BenchmarkDecode(b *testing.B) {
	for b.Loop() {
		if _, err := webhook.Decode([]byte(goodCondition)); err != nil {
			b.Fatal(err)
		}
	}
}
