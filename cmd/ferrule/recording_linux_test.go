package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
)

var killsRecording = flag.Int("kills-recording", 10, "how often TestKilledRecording kills the gateway")

// startClockwork starts a board whose one pin counts its own samples, with or without a
// connection.
func startClockwork(t *testing.T, every time.Duration, size int) (taken *atomic.Int64, address string) {
	t.Helper()
	c, taken := thing.New("clockwork", "1.0.0"), new(atomic.Int64)
	c.Analog(1, "count", "How many samples were taken before", func() int { return int(taken.Add(1)) - 1 }).Sampled(every, size)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- c.ServeTCP(ctx, ln) }()
	go func() {
		for ctx.Err() == nil {
			next, _ := c.Tick(time.Now())
			time.Sleep(time.Until(next))
		}
		ended <- nil
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		<-ended
	})
	return taken, ln.Addr().String()
}

// TestKilledRecording kills a gateway that records samples at random moments, again and
// again. No sample is recorded twice, none is missing outside a gap, and the history
// matches the stream.
func TestKilledRecording(t *testing.T) {
	t.Parallel()
	taken, address := startClockwork(t, 50*time.Millisecond, 100)
	data := t.TempDir()
	start := func() *exec.Cmd {
		cmd := exec.Command("ferrule", "up", "--data", data, "--listen", "127.0.0.1:0", "--tcp", "clockwork="+address)
		cmd.Stderr = t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		return cmd
	}
	r := rand.New(rand.NewPCG(9, uint64(*killsRecording)))
	for range *killsRecording {
		cmd := start()
		time.Sleep(300*time.Millisecond + time.Duration(r.Int64N(int64(2500*time.Millisecond))))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
	}
	restarted := time.Now()
	cmd := start()
	wait.For(t, "samples are recorded again", func() bool {
		time.Sleep(50 * time.Millisecond)
		return lastRecorded(t, data).After(restarted)
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}

	curve := recordedCurve(t, data, "clockwork", "count")
	missing := 0
	for i, p := range curve.Points {
		if i == 0 {
			continue
		}
		number, before := int(p.Mean), curve.Points[i-1]
		switch lost := number - int(before.Mean) - 1; {
		case lost < 0:
			t.Errorf("%d is recorded after %v", number, before.Mean)
		case lost > 0:
			missing += lost
			if !gapBetween(curve.Gaps, before.Time, p.Time, lost) {
				t.Errorf("%d samples are missing before %d, without a gap: %v", lost, number, curve.Gaps)
			}
		}
	}
	n, all := len(curve.Points), int(taken.Load())
	t.Logf("killed %d times: %d of %d samples are recorded, %d are missing in %d gaps", *killsRecording, n, all, missing, len(curve.Gaps))
	// It is killed more often than its buffer is polled.
	figure.AtMost(t, fmt.Sprintf("samples of %d that are not recorded", all), all-n, all-all/5)
	streamAgrees(t, data, curve)
}

// lastRecorded returns the time of the last sample that a running gateway has recorded.
func lastRecorded(t *testing.T, data string) time.Time {
	t.Helper()
	socket, err := control.SocketPath(data)
	if err != nil {
		t.Fatal(err)
	}
	client := control.NewClient(socket)
	defer client.Close()
	out, err := control.CallBuiltin[builtin.HistoryOutput](t.Context(), client, "history", builtin.HistoryInput{RangeInput: builtin.RangeInput{Device: "clockwork"}, Resolution: "raw"})
	if err != nil || len(out.Signals) != 1 || out.Signals[0].Last == nil { // it may still be starting
		return time.Time{}
	}
	return out.Signals[0].Last.Time
}

// recordedCurve returns all recorded samples of a signal.
func recordedCurve(t *testing.T, data, device, signal string) ferrule.Series {
	t.Helper()
	store, err := history.Open(filepath.Join(data, datadir.HistoryFile), history.DefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	curves, err := store.Series(t.Context(), ferrule.HistoryQuery{
		Device: device, Signals: []string{signal}, From: time.Unix(0, 0), To: time.Now().Add(time.Hour), Points: history.MaxPoints, Resolution: ferrule.Raw,
	})
	if err != nil || len(curves) != 1 || curves[0].Truncated {
		t.Fatalf("%d curves, %v", len(curves), err)
	}
	return curves[0]
}

// gapBetween reports whether a gap explains the missing samples between two.
func gapBetween(gaps []ferrule.Gap, from, to time.Time, missing int) bool {
	for _, h := range gaps {
		if !h.From.After(to) && !h.To.Before(from) && (h.MaxMissing == 0 || h.MaxMissing >= missing) {
			return true
		}
	}
	return false
}

// streamAgrees compares the recorded samples with the readings in the stream.
func streamAgrees(t *testing.T, data string, curve ferrule.Series) {
	t.Helper()
	cfg := testConfig()
	cfg.Listen, cfg.History.Enabled = "", false
	g, err := gateway.New(gateway.Parts{Config: cfg, Data: data, Version: version(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	runGateway(t, g, data)
	at := func(time time.Time, value float64) string { return fmt.Sprint(time.UnixMicro(), " ", value) }
	stream := make(map[string]bool)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	err = g.Cluster.Readings(ctx, "", func(r ferrule.StoredReading) error {
		if r.Remaining == 0 {
			defer cancel()
		}
		if r.Reading == nil {
			return nil
		}
		for _, s := range r.Reading.Batches {
			for _, sample := range s.Samples {
				if key := at(sample.Time, sample.Value); s.Signal == curve.Signal && stream[key] {
					t.Errorf("%s stands twice in the stream", key)
				} else if s.Signal == curve.Signal {
					stream[key] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range curve.Points {
		key := at(p.Time, p.Mean)
		if !stream[key] {
			t.Errorf("%s is recorded, and not in the stream", key)
		}
		delete(stream, key)
	}
	if len(stream) > 0 {
		t.Errorf("%d samples of the stream are not recorded", len(stream))
	}
}
