package mcpserver_test

import (
	"context"
	"testing"
	"time"

	"github.com/brutella/dnssd"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// TestAnnounce: the device is found in the local network with all that a client needs,
// and is withdrawn when it stops.
func TestAnnounce(t *testing.T) {
	if len(dnssd.MulticastInterfaces()) == 0 {
		t.Skip("this machine has no network with multicast")
	}
	d := mcpserver.New(thing.New("announced-by-a-test", "1"), mcpserver.Config{
		Listen: ":0", WebSocket: ":0", Path: "/device", Announce: true,
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	patience, stop := context.WithTimeout(t.Context(), wait.Ample)
	defer stop()
	gone := make(chan struct{}, 10)
	for { // while the name is being claimed, the entry may have no text
		found := make(chan dnssd.BrowseEntry, 10)
		browsing, enough := context.WithCancel(patience)
		go dnssd.LookupType(browsing, "_mcp._tcp.local.", func(e dnssd.BrowseEntry) {
			if e.Name == d.Name() {
				found <- e
			}
		}, func(e dnssd.BrowseEntry) {
			if e.Name == d.Name() {
				gone <- struct{}{}
			}
		})
		select {
		case e := <-found:
			if len(e.Text) == 0 {
				break
			}
			if e.Text["path"] != "/device" || e.Text["version"] != "2026-07-28" || e.Text["ws_port"] == "" || e.Port == 0 {
				t.Errorf("got %+v", e)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run returned %v", err)
			}
			select {
			case <-gone:
			case <-patience.Done():
				t.Error("the device is still announced")
			}
			enough()
			return
		case <-time.After(2 * time.Second):
		case <-patience.Done():
			t.Fatal("the device was not found")
		}
		enough()
	}
}
