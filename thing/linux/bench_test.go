//go:build linux

package linux

import "testing"

// BenchmarkScan measures what Run does every second when nothing has changed.
func BenchmarkScan(b *testing.B) {
	unpack(b, "pi.txtar")
	board := newWith(Config{}, newChips(), func(string) (uint32, error) { return 0, nil })
	for b.Loop() {
		if board.Scan() {
			b.Fatal("a change without one")
		}
	}
}
