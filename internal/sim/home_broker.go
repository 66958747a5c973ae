package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/ferrulehq/ferrule/internal/mqttclient"
)

// ServeHome runs a broker with a home on it until ctx ends. It calls ready with the URL
// of the broker. The broker has no password, so it must be a loopback address.
func ServeHome(ctx context.Context, h *Home, addr string, ready func(url string) error) error {
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("address must be a loopback address such as 127.0.0.1:1883, got %q: the broker has no password", addr)
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := mochi.New(&mochi.Options{InlineClient: true, Logger: slog.New(slog.DiscardHandler)})
	err = errors.Join(
		server.AddHook(new(everybody), nil),
		server.AddListener(listeners.NewNet("home", listener)),
	)
	if err == nil {
		err = server.Serve()
	}
	defer server.Close()
	if err == nil {
		err = h.Join(inlineBus{server})
	}
	if err == nil {
		err = ready("mqtt://" + listener.Addr().String())
	}
	if err != nil {
		return err
	}
	return h.Run(ctx)
}

// everybody lets every client of the machine do everything.
type everybody struct{ mochi.HookBase }

// Provides implements mochi.Hook.
func (*everybody) Provides(b byte) bool {
	return b == mochi.OnConnectAuthenticate || b == mochi.OnACLCheck
}

// OnConnectAuthenticate implements mochi.Hook.
func (*everybody) OnConnectAuthenticate(*mochi.Client, packets.Packet) bool { return true }

// OnACLCheck implements mochi.Hook.
func (*everybody) OnACLCheck(*mochi.Client, string, bool) bool { return true }

// inlineBus is the broker of this process.
type inlineBus struct{ server *mochi.Server }

// Publish implements Bus.
func (b inlineBus) Publish(topic string, payload []byte, retain bool) error {
	return b.server.Publish(topic, payload, retain, 0)
}

// Subscribe implements Bus.
func (b inlineBus) Subscribe(topic string, fn func([]byte)) error {
	return b.server.Subscribe(topic, 1, func(_ *mochi.Client, _ packets.Subscription, pk packets.Packet) { fn(pk.Payload) })
}

// JoinHome connects a home to a broker until ctx ends, and again whenever the connection
// was lost. It calls ready whenever the home is there.
func JoinHome(ctx context.Context, h *Home, url string, log *slog.Logger, ready func(url string) error) error {
	cfg := mqttclient.DefaultConfig()
	cfg.URL = url
	if err := cfg.Check(); err != nil {
		return err
	}
	client := mqttclient.New(cfg, log)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- client.Run(ctx) }()
	drifting := make(chan struct{})
	go func() {
		defer close(drifting)
		h.Run(ctx)
	}()
	for ctx.Err() == nil {
		conn, err := client.Connect(ctx)
		if err != nil {
			break
		}
		if err := h.Join(clientBus{conn}); err == nil {
			ready(url)
		} else {
			log.Warn("the broker refused a part of the home", "err", err)
		}
		select {
		case <-conn.Done():
		case <-ctx.Done():
		}
	}
	cancel()
	<-drifting
	return <-failed
}

// clientBus is a connection to a broker elsewhere. Its calls end with the connection.
type clientBus struct{ conn *mqttclient.Conn }

// Publish implements Bus.
func (b clientBus) Publish(topic string, payload []byte, retain bool) error {
	return b.conn.Publish(context.Background(), mqttclient.Publication{Topic: topic, Payload: payload, Retain: retain})
}

// Subscribe implements Bus. A device answers in another goroutine than the one that reads
// the connection, which must not wait.
func (b clientBus) Subscribe(topic string, fn func([]byte)) error {
	queue := make(chan []byte, 1024)
	go func() {
		for {
			select {
			case payload := <-queue:
				fn(payload)
			case <-b.conn.Done():
				return
			}
		}
	}()
	_, err := b.conn.Subscribe(context.Background(), func(m mqttclient.Message) {
		select {
		case queue <- m.Payload:
		default: // as a real device would, it loses what is too much
		}
	}, mqttclient.Filter{Topic: topic, QoS: 1})
	return err
}
