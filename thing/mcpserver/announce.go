package mcpserver

import (
	"context"
	"fmt"
	"strconv"

	"github.com/brutella/dnssd"
	dnssdlog "github.com/brutella/dnssd/log"

	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// service is the DNS-SD service type of MCP servers.
const service = "_mcp._tcp"

// Announce announces the device in the local network by multicast DNS until ctx ends;
// it then returns nil. If the name is taken, the device gets a number. WebSocketPort is
// 0 without WebSockets.
func (d *Device) Announce(ctx context.Context, port, webSocketPort int) error {
	dnssdlog.Info.Disable() // writes errors of other devices to standard output
	text := map[string]string{"path": d.config.Path, "version": mcphttp.StatelessVersion}
	if webSocketPort != 0 {
		text["ws_port"] = strconv.Itoa(webSocketPort)
	}
	srv, err := dnssd.NewService(dnssd.Config{Name: d.Name(), Type: service, Port: port, Text: text, Ifaces: d.config.Interfaces})
	if err != nil {
		return fmt.Errorf("announcing the device: %w", err)
	}
	responder, err := dnssd.NewResponder()
	if err != nil {
		return fmt.Errorf("announcing the device: %w", err)
	}
	if _, err := responder.Add(srv); err != nil {
		return fmt.Errorf("announcing the device: %w", err)
	}
	if err := responder.Respond(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("announcing the device: %w", err)
	}
	return nil
}
