package mcpserver

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/ferrulehq/ferrule/thing"
)

// Stats are statistics of a device since New.
type Stats struct {
	// Calls is the number of calls of tools that have ended.
	Calls int
	// Refused is how many of them did nothing, Failed how many may have done something and
	// failed. The rest succeeded.
	Refused, Failed int
	// Busy is how long tools were running.
	Busy time.Duration
	// Sessions is the number of connected clients, Waiting that of calls that wait for their
	// turn, and Tasks that of tasks that are running or kept.
	Sessions, Waiting, Tasks int
	Cache                    CacheStats
}

// statistics counts calls, and knows where the device is served.
type statistics struct {
	mu              sync.Mutex
	calls           Stats
	http, webSocket net.Addr // nil while it is not served
}

// Stats returns statistics of the device.
func (d *Device) Stats() Stats {
	d.statistics.mu.Lock()
	stats := d.statistics.calls
	d.statistics.mu.Unlock()
	stats.Sessions, stats.Waiting, stats.Tasks = d.http.Sessions(), int(d.lane.waiting.Load()), d.tasks.count()
	stats.Cache = d.CacheStats()
	return stats
}

// ended counts a call that has ended.
func (s *statistics) ended(err error) {
	var refused *thing.RefusedError
	var request *jsonrpc.Error
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.Calls++
	switch {
	case err == nil:
	case errors.As(err, &refused), errors.As(err, &request):
		s.calls.Refused++
	default:
		s.calls.Failed++
	}
}

// ran counts the time of a tool.
func (s *statistics) ran(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.Busy += took
}

// Addr returns the address that MCP over HTTP is served at, or nil if it is not served. A
// device that listens on ":0" has its port here.
func (d *Device) Addr() net.Addr { return d.statistics.read(&d.statistics.http) }

// WebSocketAddr returns the address that MCP over WebSockets is served at, or nil if it is not
// served.
func (d *Device) WebSocketAddr() net.Addr { return d.statistics.read(&d.statistics.webSocket) }

// Port returns the port of Addr, or 0.
func (d *Device) Port() int {
	if tcp, ok := d.Addr().(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}

func (s *statistics) read(addr *net.Addr) net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *addr
}

// serving keeps an address until the returned function is called.
func (s *statistics) serving(kept *net.Addr, addr net.Addr) (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*kept = addr
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if *kept == addr { // else it is served at another address, too
			*kept = nil
		}
	}
}
