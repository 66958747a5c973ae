//go:build bench

package main

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestRatioSerial compares a call to an emulated Uno, with true bit timing, to the raw
// round trip. They take turns.
func TestRatioSerial(t *testing.T) {
	const turns, calls = 5, 40
	board := uno.Start(t, uno.Options{})
	g := startGateway(t, nil, onSerial("uno", board, 0))
	call := pipelineCall(t, g, "uno", "gpio_read", `{"pin":13}`)
	var got, base []time.Duration
	for range turns {
		g.online("uno")
		medians(5, call)
		got = append(got, medians(calls, call)[0])
		if err := g.Dock.Release(t.Context(), "uno", time.Hour); err != nil {
			t.Fatal(err)
		}
		wait.For(t, "the port is free", func() bool { return g.device("uno").State == ferrule.StateReleased })
		base = append(base, rawSerial(t, board.Path(), calls))
		if err := g.Dock.Release(t.Context(), "uno", 0); err != nil {
			t.Fatal(err)
		}
	}
	most(t, "reading over a serial port: pipeline against raw", got, base, 1.1)
}

// rawSerial returns the median of raw round trips.
func rawSerial(t *testing.T, path string, calls int) time.Duration {
	t.Helper()
	port, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0) // it is set up already
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	read := trip(t, newRaw(port), "gpio_read", `{"pin":13}`)
	medians(5, read)
	return medians(calls, read)[0]
}
