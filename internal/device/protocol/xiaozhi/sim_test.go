package xiaozhi_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/xiaozhi"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/sim"
	device "github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// outcome is what a toy is expected to do.
type outcome struct {
	tools int          // number of tools
	note  string       // part of a note about it
	code  ferrule.Code // of a call with a deadline of a second; empty if it succeeds
	next  ferrule.Code // of the one after it
}

// TestSimulatedToys: a call has the right outcome, whatever the toy does.
func TestSimulatedToys(t *testing.T) {
	const all = 11
	odd := map[string]outcome{
		"no-tools":       {code: ferrule.Refused, next: ferrule.Refused},
		"user-tools":     {tools: 4, code: ferrule.Refused, next: ferrule.Refused},
		"long-list":      {tools: all + 100},
		"lost-cursor":    {tools: 107},
		"long-tool":      {tools: 7, note: "self.huge is too long"},
		"long-user-tool": {tools: 7, note: "self.huge is too long"},
		"page-loop":      {tools: 2, note: "does not end"},
		"unescaped":      {tools: all, code: ferrule.Failed, next: ferrule.Failed},
		"failing":        {tools: all, code: ferrule.Failed, next: ferrule.Failed},
		"late":           {tools: all, code: ferrule.Unanswered, next: ferrule.Unanswered},
		"queued":         {tools: all, code: ferrule.Unanswered}, // both answers arrive during the second call
		"silent":         {tools: all, code: ferrule.Unanswered, next: ferrule.Unanswered},
	}
	for _, b := range sim.ToyBehaviors() {
		t.Run(b.Name, func(t *testing.T) {
			want, ok := odd[b.Name]
			if !ok {
				want = outcome{tools: all}
			}
			synctest.Test(t, func(t *testing.T) { meet(t, b.Name, want) })
		})
	}
}

func meet(t *testing.T, misbehave string, want outcome) {
	toy, err := sim.NewToy(1, misbehave)
	if err != nil {
		t.Fatal(err)
	}
	link, far := transporttest.Pipe(transport.Info{Transport: "ws"})
	out := make(chan []byte, 64)
	over := make(chan struct{})
	go drain(far, out)
	go func() {
		defer close(over)
		toy.ServeConn(context.Background(), device.Lines(stack{far, out}), true)
	}()
	defer func() {
		link.Close()
		far.Close()
		<-over
		close(out)
	}()
	s, m, err := xiaozhi.New(xiaozhi.Parts{}).Greet(t.Context(), link)
	if misbehave == "old-firmware" {
		if err == nil || !strings.Contains(err.Error(), "firmware without MCP") {
			t.Errorf("greeting: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Tools) != want.tools || !strings.Contains(strings.Join(m.Notes, "\n"), want.note) || want.note == "" && m.Notes != nil {
		t.Errorf("%d tools, notes %q", len(m.Tools), m.Notes)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	for _, code := range []ferrule.Code{want.code, want.next} {
		if got := turnOn(t.Context(), s); got != code {
			t.Errorf("a call ended with %q, want %q", got, code)
		}
	}
	if misbehave == "strict-hello" {
		time.Sleep(20 * time.Second) // it would have dropped the connection by now
		if got := turnOn(t.Context(), s); got != "" {
			t.Errorf("later, a call ended with %q", got)
		}
	}
	stop()
	<-ran
}

// turnOn turns the lamp on, and returns the code of the error.
func turnOn(ctx context.Context, s protocol.Session) ferrule.Code {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := s.Invoke(ctx, &ferrule.Call{Device: "toy", Tool: "self.lamp.turn_on", Args: json.RawMessage(`{}`)})
	if err == nil {
		return ""
	}
	return ferrule.AsError(err).Code
}
