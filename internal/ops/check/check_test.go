package check_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ops/check"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

func TestParseTarget(t *testing.T) {
	for _, text := range []string{
		"/dev/ttyACM0", "COM3", "serial:///dev/ttyUSB0", "192.168.1.20:4242", "[::1]:4242", "tcp://robot.local:4242",
		"http://lamp.local/mcp", "https://lamp.local/mcp", "ws://toy.local:8080/ws", "ws://:3380", "mqtt://broker/lamp", "mqtts://broker:8883/lamp",
	} {
		if _, err := check.ParseTarget(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"", "robot", "ftp://host/x", "http://", "gopher:70:x"} {
		if got, err := check.ParseTarget(text); err == nil {
			t.Errorf("%q was accepted as %v", text, got)
		}
	}
	if got := target(t, "http://token:secret@lamp.local/mcp").String(); strings.Contains(got, "secret") {
		t.Errorf("the target shows its password: %s", got)
	}
}

// peers are devices that do their worst with each connection.
var peers = map[string]func(ctx context.Context, conn net.Conn){
	"closes":       func(context.Context, net.Conn) {},
	"never reads":  func(ctx context.Context, _ net.Conn) { <-ctx.Done() },
	"random bytes": func(_ context.Context, conn net.Conn) { io.Copy(conn, rand.Reader) },
	"every answer": func(_ context.Context, conn net.Conn) {
		for id := 0; ; id++ {
			if _, err := fmt.Fprintf(conn, "{\"result\":{\"device\":\"\\u001b[2J\",\"tools\":[{\"name\":\"x\"}]},\"jsonrpc\":\"2.0\",\"id\":%d}\n", 90+id%5000); err != nil {
				return
			}
		}
	},
	"deep": func(_ context.Context, conn net.Conn) {
		io.WriteString(conn, strings.Repeat(`{"id":`, 100_000)+"\n")
		io.Copy(io.Discard, conn)
	},
	"half an answer": func(_ context.Context, conn net.Conn) {
		io.CopyN(io.Discard, conn, 10)
		io.WriteString(conn, `{"result":{"device":"x`)
	},
	"drips a document": drip("application/json"),
	"drips a stream":   drip("text/event-stream"),
	"reads only":       func(_ context.Context, conn net.Conn) { io.Copy(io.Discard, conn) },
}

// drip returns a peer that answers with the header of a response, and then with a byte now and
// then.
func drip(typ string) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) {
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: "+typ+"\r\n\r\n")
		for err == nil && ctx.Err() == nil {
			_, err = io.WriteString(conn, " ")
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// TestHostilePeers checks that no device can crash, block or confuse a check, over any
// protocol: it ends, and no device that answers nothing has a score.
func TestHostilePeers(t *testing.T) {
	slow(t)
	t.Parallel()
	targets := make(map[string]check.Target)
	for name, peer := range peers {
		addr := serve(t, func(ctx context.Context, ln net.Listener) error { return accept(ctx, ln, peer) })
		for _, form := range []string{"%s", "http://%s/mcp", "ws://%s/"} {
			targets[fmt.Sprintf(form, name)] = target(t, fmt.Sprintf(form, addr))
		}
	}
	var mu sync.Mutex
	longest := time.Duration(0)
	checkAll(t, slices.Collect(maps.Keys(targets)), func(name string) (*check.Report, error) {
		began := time.Now()
		report, err := check.Run(t.Context(), targets[name], check.Options{})
		mu.Lock()
		longest = max(longest, time.Since(began))
		mu.Unlock()
		switch {
		case err != nil:
			if strings.ContainsAny(err.Error(), "\x1b\x07") {
				t.Errorf("%s: the error has control characters: %q", name, err)
			}
		case slices.Contains(ids(report), report.Protocol+".out-of-time") && figure.Measuring():
			t.Errorf("%s: not done in time, with %v", name, ids(report))
		case report.Score > 50:
			t.Errorf("%s: the score is %d with %v", name, report.Score, ids(report))
		case strings.Contains(fmt.Sprintf("%+v", report), "\x1b"):
			t.Errorf("%s: the report has control characters: %+v", name, report)
		}
		return report, nil
	})
	figure.AtMost(t, "check of a hostile peer", longest, time.Minute)
}

// accept serves each connection by a peer until ctx ends.
func accept(ctx context.Context, ln net.Listener, peer func(context.Context, net.Conn)) error {
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	for {
		conn, err := ln.Accept()
		if err != nil {
			return nil
		}
		go func() {
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			defer conn.Close()
			peer(ctx, conn)
		}()
	}
}

// TestCancel checks that a check ends when its context ends, and says why.
func TestCancel(t *testing.T) {
	slow(t)
	t.Parallel()
	_, deaf := startBoard(t, "deaf")
	_, late := startBoard(t, "late")
	_, good := startBoard(t, "")
	silent := serve(t, func(ctx context.Context, ln net.Listener) error { <-ctx.Done(); return ln.Close() })
	for step, at := range map[string]check.Target{
		"identity": deaf, "calls": late, "sampling": good, "connection": target(t, "ws://0.0.0.0:0"),
		"": target(t, "http://"+silent+"/mcp"), // before the first step
	} {
		t.Run("in "+step, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cancelled := make(chan time.Time, 1)
			stop := func() {
				time.AfterFunc(20*time.Millisecond, func() {
					cancelled <- time.Now()
					cancel()
				})
			}
			if step == "" {
				stop()
			}
			report, err := check.Run(ctx, at, check.Options{OnStep: func(_, _ int, s check.Step) {
				if s.Name == step && s.State == check.Running {
					stop()
				}
			}})
			if !errors.Is(err, context.Canceled) || report != nil {
				t.Errorf("got %v, %v", report, err)
			}
			select {
			case began := <-cancelled:
				figure.AtMost(t, "until a cancelled check ends", time.Since(began), time.Second)
			default:
				t.Error("the step did not run")
			}
		})
	}
}
