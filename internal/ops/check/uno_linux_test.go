package check_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport/serial"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/check"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
)

// checkUno tests an emulated board, with the finding IDs that it must have.
func checkUno(t *testing.T, o uno.Options, options check.Options) (*uno.Board, *check.Report) {
	t.Helper()
	b := uno.Start(t, o)
	b.ADC(0, 2500)
	report, err := check.Run(t.Context(), target(t, b.Path()), options)
	if err != nil {
		t.Fatal(err)
	}
	dump(t, report)
	figure.AtMost(t, "seconds of a check of a board", report.Took, 60)
	return b, report
}

// TestUno checks that an Arduino Uno that reads whole lines has the full score, with a restart
// at each opening of its port and without, and that no output changes.
func TestUno(t *testing.T) {
	slow(t)
	for name, o := range map[string]uno.Options{
		"keeps running": {}, "restarts": {BootTime: 1500 * time.Millisecond, Strict: true}, "large": {Large: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, report := checkUno(t, o, check.Options{})
			if report.Score != 100 || report.Device != "rig-uno" {
				t.Errorf("%s has the score %d with %v", report.Device, report.Score, ids(report))
			}
			for _, pin := range []string{"B5", "B1"} {
				for _, e := range b.Edges(pin) {
					if e.High {
						t.Errorf("output %s was set", pin)
					}
				}
			}
		})
	}
}

// TestUnoFragments checks that the receive loop of the library is found, and that LineStream.h
// cures it.
func TestUnoFragments(t *testing.T) {
	slow(t)
	t.Run("library", func(t *testing.T) {
		t.Parallel()
		_, report := checkUno(t, uno.Options{Fragments: true}, check.Options{})
		judge(t, report, []string{"mcpu.fragments"}, unoReaders)
	})
	t.Run("LineStream", func(t *testing.T) {
		t.Parallel()
		if _, report := checkUno(t, uno.Options{Sketch: "../../testenv/uno/testdata/lines"}, check.Options{}); report.Score != 100 {
			t.Errorf("the score is %d with %v", report.Score, ids(report))
		}
	})
}

// TestUnoActuate checks that outputs are changed with Actuate, and are as before in the end.
func TestUnoActuate(t *testing.T) {
	slow(t)
	t.Parallel()
	b, report := checkUno(t, uno.Options{}, check.Options{Actuate: true})
	edges := b.Edges("B5")
	if report.Score != 100 || len(edges) < 2 || edges[len(edges)-1].High || !edges[len(edges)-2].High {
		t.Errorf("the score is %d, and the LED had the edges %v", report.Score, edges)
	}
}

// TestUnoInterrupted checks that an output is restored if the check is interrupted while it is
// inverted.
func TestUnoInterrupted(t *testing.T) {
	slow(t)
	t.Parallel()
	b := uno.Start(t, uno.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	port := target(t, b.Path())
	go func() {
		_, err := check.Run(ctx, port, check.Options{Actuate: true})
		ended <- err
	}()
	b.WaitPin("B5", true)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if b.Pin("B5") {
		t.Error("the LED is still on")
	}
}

// TestUnoRestart checks that a restart during the check is found.
func TestUnoRestart(t *testing.T) {
	slow(t)
	t.Parallel()
	b := uno.Start(t, uno.Options{BootTime: 300 * time.Millisecond})
	b.ADC(0, 2500)
	report, err := check.Run(t.Context(), target(t, b.Path()), check.Options{OnStep: func(_, _ int, s check.Step) {
		if s.Name == "speed" && s.State == check.Running {
			b.Reset()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	judge(t, report, []string{"mcpu.restarted"}, unoReaders)
}

// TestUnoSlow checks that a slow line is found.
func TestUnoSlow(t *testing.T) {
	slow(t)
	t.Parallel()
	b := uno.Start(t, uno.Options{Baud: 9600, Large: true})
	b.ADC(0, 2500)
	report, err := check.Run(t.Context(), target(t, b.Path()), check.Options{Baud: 9600})
	if err != nil {
		t.Fatal(err)
	}
	judge(t, report, []string{"mcpu.slow-line"}, unoReaders)
}

// unoReaders are the tools of the board that only read, or ask to be polled.
var unoReaders = append([]string{"uptime"}, readers...)

// TestUnoBusy checks that a port which another program uses is not opened, and that the error
// says how to release it.
func TestUnoBusy(t *testing.T) {
	slow(t)
	t.Parallel()
	b := uno.Start(t, uno.Options{})
	port, err := os.OpenFile(b.Path(), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	other := exec.CommandContext(t.Context(), "sleep", "60")
	other.Stdin = port
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	exclusive, err := serial.Open(b.Path(), serial.DefaultBaud) // of this process, which does not count
	if err != nil {
		t.Fatal(err)
	}
	defer exclusive.Close()
	_, err = check.Run(t.Context(), target(t, b.Path()), check.Options{})
	var e *ferrule.Error
	if !errors.As(err, &e) || e.Code != ferrule.Busy || !strings.Contains(e.Message, "in use by") || !strings.Contains(e.Hint, "`ferrule release NAME -- ferrule check "+b.Path()+"`") {
		t.Errorf("got %#v", err)
	}
}
