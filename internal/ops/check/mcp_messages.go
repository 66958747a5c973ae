package check

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mcpmqtt"
	"github.com/ferrulehq/ferrule/internal/device/transport/websocket"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
)

// opener opens a link to a device that can be reached.
type opener func(ctx context.Context) (transport.Link, error)

// helloGrace is how long a device on a WebSocket may take to say hello. Then it is taken for an
// MCP server.
const helloGrace = 500 * time.Millisecond

// checkSocket tests a device that listens for WebSockets: a toy that says hello, or an MCP
// server.
func checkSocket(ctx context.Context, target Target, o Options) (*Report, error) {
	u := *target.url
	token, _ := u.User.Password()
	u.User = nil
	open := func(ctx context.Context) (transport.Link, error) {
		return websocket.DefaultConfig().Dial(ctx, u.Host, u.String(), token, (&net.Dialer{Timeout: dialTimeout}).DialContext)
	}
	link, err := open(ctx)
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Offline, "%w", err).WithHint("Check the URL and that the device is on.")
	}
	box := newInbox(ctx, link)
	select {
	case in, ok := <-box.in:
		if ok && in.kind == kindHello {
			t := &toy{talk: newTalk(newRun(target, "xiaozhi", xiaozhiRules, o), "xiaozhi"), hello: true}
			t.enveloped, t.reading, t.box, t.opened = true, toyReaders, box, time.Now()
			t.next, t.talk.greet = open, t.greet
			defer func() { t.close() }()
			t.receive(ctx, in)
			return t.test(ctx)
		}
	case <-time.After(helloGrace):
	case <-ctx.Done():
		box.close()
		return nil, ctx.Err()
	}
	return checkMessages(ctx, target, o, open, box)
}

// checkMessages tests an MCP server over a link of messages.
func checkMessages(ctx context.Context, target Target, o Options, open opener, box *inbox) (*Report, error) {
	t := newTalk(newRun(target, "mcp", mcpRules, o), "mcp")
	t.next, t.box, t.opened = open, box, time.Now()
	t.greet = func(ctx context.Context) error {
		r := t.ask(ctx, "initialize", initParams, 10*time.Second)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if r.outcome != answered || r.err != nil {
			t.finding("no-answer", r.evidence(), "initialize was not answered with a result: %s", r.outcome)
			return errGiveUp
		}
		t.serverInfo(r)
		return t.notify(ctx, "notifications/initialized")
	}
	defer func() { t.close() }()
	err := t.steps(ctx, []step{
		{"identity", func(ctx context.Context) (string, error) {
			err := t.greet(ctx)
			return t.run.report.Device + " " + t.run.report.Version, err
		}},
		{"list", t.list}, {"names", t.names}, {"schemas", t.schemas}, {"calls", t.calls}, {"errors", t.errors},
		{"several requests", func(ctx context.Context) (string, error) { return t.several(ctx, "tools/list", "{}") }},
		{"speed", func(ctx context.Context) (string, error) { return t.measure(ctx, "ping", "{}") }},
		{"reconnect", t.redial},
	})
	if err != nil {
		return nil, err
	}
	return t.finish(), nil
}

// redial opens another connection and compares the list.
func (t *talk) redial(ctx context.Context) (string, error) {
	began := time.Now()
	if err := t.connect(ctx); err != nil {
		if errors.Is(err, errGiveUp) || ctx.Err() != nil {
			return "", err
		}
		t.finding("closed-connection", evidence{}, "a second connection failed: %s", err)
		return "", errGiveUp
	}
	took := time.Since(began)
	_, text, _, err := t.readList(ctx, t.extra)
	if err == nil && text != t.raw {
		t.finding("changing-list", evidence{}, "after reconnecting the list differs")
	}
	return fmt.Sprintf("answers %.1f s after reconnecting", took.Seconds()), err
}

// checkBroker tests an MCP server on an MQTT broker.
func checkBroker(ctx context.Context, target Target, o Options) (*Report, error) {
	server := strings.Trim(target.url.Path, "/")
	cfg := mcpmqtt.Config{Broker: "check", Client: mqttclient.DefaultConfig()}
	cfg.Client.URL = (&url.URL{Scheme: target.url.Scheme, Host: target.url.Host}).String()
	cfg.Client.User = target.url.User.Username()
	password, _ := target.url.User.Password()
	cfg.Client.Password = ferrule.Secret(password)
	if err := cfg.Client.Check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	quiet := slog.New(slog.DiscardHandler)
	client := mqttclient.New(cfg.Client, quiet)
	found := make(chan []transport.Sighting, 1)
	var wg sync.WaitGroup
	wg.Go(func() { client.Run(ctx) })
	wg.Go(func() {
		mcpmqtt.New(cfg, client, quiet).Watch(ctx, func(_ string, all []transport.Sighting) {
			select {
			case <-found: // only the newest counts
			default:
			}
			found <- all
		})
	})
	defer wg.Wait()
	defer cancel()
	seen, err := findServer(ctx, found, server)
	if err != nil {
		if state := client.State(); !state.Connected && state.Reason != "" {
			err = fmt.Errorf("the broker is not connected: %s", state.Reason)
		}
		return nil, ferrule.Errorf(ferrule.Offline, "%s: %w", target, err).WithHint("The target is mqtt://BROKER/SERVER, with the ID or the name of an MCP server that is announced on the broker.")
	}
	link, err := seen.Open(ctx)
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Offline, "connecting to %s: %w", target, err)
	}
	return checkMessages(ctx, target, o, seen.Open, newInbox(ctx, link))
}

// findServer waits until a server is announced.
func findServer(ctx context.Context, found <-chan []transport.Sighting, server string) (transport.Sighting, error) {
	timeout := time.After(5 * time.Second)
	var names []string
	for {
		select {
		case all := <-found:
			names = nil
			for _, s := range all {
				id := strings.TrimPrefix(s.Address, "mcp:check/")
				if id == server || s.Title == server {
					return s, nil
				}
				names = append(names, ferrule.Clean(id, ferrule.MaxWord))
			}
		case <-timeout:
			if len(names) == 0 {
				return transport.Sighting{}, errors.New("no MCP server is announced")
			}
			return transport.Sighting{}, fmt.Errorf("no such MCP server is announced, only %s", ferrule.OneLine(strings.Join(names, ", "), 200))
		case <-ctx.Done():
			return transport.Sighting{}, ctx.Err()
		}
	}
}
