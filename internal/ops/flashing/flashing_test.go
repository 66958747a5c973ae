package flashing

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/pinning"
)

// gateway implements Gateway. Each method fails as long as its function says so.
type gateway struct {
	release func(length time.Duration) error
	retry   func() error
	ended   int
}

func (g *gateway) Describe(context.Context, string) (builtin.DescribeDeviceOutput, error) {
	return builtin.DescribeDeviceOutput{Device: builtin.DescribedDevice{State: "online", Version: "1.1", Kind: "0123"}}, nil
}

func (g *gateway) Release(_ context.Context, device string, length time.Duration) (builtin.ReleaseDeviceOutput, error) {
	err := g.release(length)
	if err == nil && length == 0 {
		g.ended++
	}
	return builtin.ReleaseDeviceOutput{Device: device}, err
}

func (g *gateway) Retry(context.Context, string) error { return g.retry() }

func (g *gateway) Changes(_ context.Context, device string, since ferrule.Kind) (pinning.Report, error) {
	return pinning.Report{Device: device, Since: since, Now: since}, nil
}

// TestTakeBack: a gateway that is being restarted is asked until it has the port back, and
// a device may take a while to come back.
func TestTakeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		g := &gateway{}
		g.release = func(time.Duration) error {
			if time.Since(begun) < 5*time.Second {
				return errors.New("no gateway is running")
			}
			return nil
		}
		g.retry = func() error {
			if time.Since(begun) < 20*time.Second {
				return ferrule.Errorf(ferrule.Offline, "unplugged")
			}
			return nil
		}
		j := Job{Device: "robot", For: time.Minute, Gateway: g, Say: func(string) {}}
		out := Outcome{Device: "robot"}
		if err := j.takeBack(t.Context()); err != nil || g.ended != 1 {
			t.Errorf("got %v, ended %d times", err, g.ended)
		}
		if err := j.compare(t.Context(), builtin.DescribedDevice{Kind: "0123", Version: "1.0"}, &out); err != nil || out.State != "online" {
			t.Errorf("got %+v, %v", out, err)
		}
		want := "robot is online. Its version is 1.1, before 1.0.\nrobot says the same about itself as before (0123).\n"
		if got := out.Text(func(_, text string) string { return text }); got != want {
			t.Errorf("got %q", got)
		}

		g.release = func(time.Duration) error { return errors.New("no gateway is running") }
		if err := j.takeBack(t.Context()); err == nil {
			t.Error("got no error")
		}
		g.retry = func() error { return ferrule.Errorf(ferrule.Offline, "unplugged") }
		err := j.compare(t.Context(), builtin.DescribedDevice{}, &out)
		if e := ferrule.AsError(err); e.Code != ferrule.Offline || !strings.Contains(e.Message, "robot did not come back within 30s: unplugged") || e.Hint == "" {
			t.Errorf("got %+v", e)
		}
	})
}

// TestExtend: the release is extended three times in its length, and a failure is said
// once.
func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		var said []string
		g := &gateway{release: func(length time.Duration) error {
			if n++; length != time.Minute {
				t.Errorf("released for %v", length)
			}
			if n == 2 || n == 3 {
				return errors.New("no gateway is running")
			}
			return nil
		}}
		j := Job{Device: "robot", For: time.Minute, Gateway: g, Say: func(text string) { said = append(said, text) }}
		stop, over := make(chan struct{}), make(chan struct{})
		go func() { j.extend(t.Context(), stop); close(over) }()
		time.Sleep(110 * time.Second)
		close(stop)
		<-over
		if n != 5 || len(said) != 1 {
			t.Errorf("extended %d times, said %q", n, said)
		}
	})
}

// TestNotFound: the port is not released for a program that does not exist.
func TestNotFound(t *testing.T) {
	g := &gateway{release: func(time.Duration) error { t.Error("released"); return nil }}
	_, err := Job{Device: "robot", Command: []string{"no-such-program"}, For: time.Minute, Gateway: g, Say: func(string) {}}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the port was not released") {
		t.Errorf("got %v", err)
	}
}
