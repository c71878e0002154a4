package pricing

import (
	"testing"
	"time"
)

// BenchmarkItem prices one amount of a usage record with each of the two number types.
func BenchmarkItem(b *testing.B) {
	const amount, held, price = 2048, int64(37 * time.Minute), 2500
	b.Run("wide", func(b *testing.B) {
		for b.Loop() {
			p, _ := wideProduct(amount, held, price)
			_, _ = p.rounded(perGiB * uint64(time.Second))
		}
	})
	b.Run("exact", func(b *testing.B) {
		for b.Loop() {
			round(per(product(int64(amount), held, price), perGiB*int64(time.Second)))
		}
	})
}
