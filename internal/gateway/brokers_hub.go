package gateway

import (
	"context"
	"log/slog"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mqttclient"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// newHub is replaced when package hass has its hub.
func newHub(config.Broker, *mqttclient.Client, *slog.Logger) hub { return idle{} }

type idle struct{}

func (idle) Watch(ctx context.Context, _ func(string, []transport.Sighting)) error {
	<-ctx.Done()
	return nil
}

func (idle) Problem() string { return "" }
