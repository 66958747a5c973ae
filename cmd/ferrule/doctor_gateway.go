package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// known is what is known of the gateway of the data directory.
type known struct {
	socket    string
	socketErr error
	process   program // that listens on the socket, where the system tells
	locks     bool    // the system tells of locks
	lock      program // that has the data directory locked
	status    builtin.StatusOutput
	err       error // why it has not told its status
}

// Why there is no status: no gateway is running, or it does not answer.
var (
	errAbsent = control.ErrNoGateway
	errMute   = fmt.Errorf("it does not answer within %v", askTime)
)

// program is a process of this machine, as far as the system tells.
type program struct {
	pid     int
	command string
}

func (p program) String() string {
	if p.command == "" {
		return fmt.Sprintf("process %d", p.pid)
	}
	return fmt.Sprintf("process %d (%s)", p.pid, oneLine(ferrule.Clean(p.command, ferrule.MaxText), 200))
}

// askGateway asks the gateway how it is.
func (d *doctor) askGateway(ctx context.Context) (k known) {
	if d.data == "" {
		k.err = errAbsent
		return k
	}
	k.lock.pid, k.locks = lockHolder(d.root, filepath.Join(d.data, lockName))
	k.lock.command = commandOf(d.root, k.lock.pid)
	if k.socket, k.socketErr = control.FindSocket(d.data); k.socketErr != nil {
		k.err = k.socketErr
		return k
	}
	k.process.pid = listenerOf(ctx, k.socket)
	k.process.command = commandOf(d.root, k.process.pid)
	client := control.NewClient(k.socket)
	defer client.Close()
	k.status, k.err = callOwn[builtin.StatusOutput](ctx, client, "status", builtin.StatusInput{})
	if k.err != nil && ctx.Err() != nil {
		k.err = errMute
	}
	return k
}

// listenerOf is the process that listens on a socket; 0 if that is not known.
func listenerOf(ctx context.Context, socket string) int {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0
	}
	defer conn.Close()
	return peerOf(conn.(*net.UnixConn))
}

// running tells whether a gateway is there, and answers.
func (d *doctor) running(context.Context) []finding {
	g := d.gateway
	if g.socketErr != nil {
		return nil // it is told of the data directory
	}
	f := finding{Check: "running", About: d.data, State: wrong, Next: "try again; if it hangs, end it"}
	who := "a gateway"
	if g.process.pid != 0 {
		who = g.process.String()
		f.Next = fmt.Sprintf("%s: kill %d", f.Next, g.process.pid)
	}
	var refused *ferrule.Error
	switch {
	case g.err == nil:
		f.State, f.Next = fine, ""
		f.Found = fmt.Sprintf("%s is running. %s", who, g.status.Summary)
	case errors.Is(g.err, errAbsent) && g.lock.pid != 0:
		f.Found = fmt.Sprintf("%s has the data directory, and nobody answers at its socket", g.lock)
		f.Next = fmt.Sprintf("it may have just begun; %s: kill %d", f.Next, g.lock.pid)
	case errors.Is(g.err, errAbsent):
		f.State, f.Found = note, "no gateway is running"
		f.Next = "`ferrule up` starts one; an agent that runs `ferrule mcp` needs none"
	case errors.As(g.err, &refused):
		f.State, f.Found, f.Next = note, fmt.Sprintf("%s is running, and does not tell its status: %v", who, refused.Message), refused.Hint
	case errors.Is(g.err, os.ErrPermission):
		f.Found, f.Next = fmt.Sprintf("%s cannot be asked: %v", who, g.err), "it is another user's: ask as that one; "+elsewhere
	default:
		f.Found = fmt.Sprintf("%s cannot be asked: %v", who, g.err)
	}
	return []finding{f}
}

// nodes tells whether the gateway hears of the others, if it is one of several, and
// whether its engine works.
func (d *doctor) nodes(context.Context) []finding {
	n := d.gateway.status.Nodes
	if d.gateway.err != nil || n == nil {
		return nil
	}
	f := finding{Check: "nodes", About: n.Node, State: fine}
	switch {
	case !n.Working:
		f.State = wrong
		f.Found = fmt.Sprintf("since %s the engine does not work: %s. Devices of this gateway are served", ferrule.FormatTime(n.Since), n.Reason)
		f.Next = "are the servers below `bus:` in the config file right, and there? Is there room on the disk?"
	case len(n.Others) == 0:
		f.State, f.Found = note, fmt.Sprintf("this is the only node of %s that is there", n.Tenant)
	default:
		f.Found = fmt.Sprintf("one of the nodes of %s; the others that are there: %s", n.Tenant, strings.Join(n.Others[:min(len(n.Others), 10)], ", "))
	}
	return []finding{f}
}

// endpoints tells of endpoints that the gateway is not connected to.
func (d *doctor) endpoints(context.Context) []finding {
	var all []finding
	for _, away := range d.gateway.status.Endpoints {
		all = append(all, finding{
			Check: "endpoints", State: wrong, Found: away,
			Next: "voice agents there do not see your devices; it is tried again by itself. docs/how-to/connect-voice-agents.md tells more",
		})
	}
	return all
}

// history tells if what devices measure is not recorded.
func (d *doctor) history(context.Context) []finding {
	why := d.gateway.status.NotRecording
	if why == "" {
		return nil
	}
	return []finding{{
		Check: "history", About: filepath.Join(d.data, historyFile), State: wrong, Found: "what devices measure is not recorded: " + why,
		Next: "devices are served all the same. Make room on the disk; it goes on by itself, with what was measured meanwhile",
	}}
}

// http tells whether the gateway can be reached over HTTP; where none is running,
// whether another program has its address.
func (d *doctor) http(ctx context.Context) []finding {
	switch {
	case d.gateway.err == nil:
		return []finding{d.served(ctx, d.gateway.status.Listen)}
	case !errors.Is(d.gateway.err, errAbsent) || d.gateway.lock.pid != 0:
		return nil // it may be the gateway's own
	}
	return []finding{d.free(ctx, d.settings().Listen)}
}

// served tells of the address that a gateway serves.
func (d *doctor) served(ctx context.Context, addr string) finding {
	f := finding{Check: "http", About: addr, State: fine}
	if addr == "" {
		f.Found = "the gateway serves no HTTP; agents that start `ferrule mcp` need none"
		return f
	}
	h, err := askHealth(ctx, addr)
	switch {
	case err != nil:
		f.State, f.Found = wrong, fmt.Sprintf("http://%s/healthz does not answer: %v", addr, err)
		f.Next = "start the gateway again; its log tells more"
	case h.Status != "ok":
		f.State, f.Found = wrong, fmt.Sprintf("the gateway is %s: %s", h.Status, h.Journal)
		f.Next = "nothing may be changed until its journal can be written"
	default:
		f.Found = fmt.Sprintf("http://%s/healthz answers; agents are served at /mcp", addr)
	}
	return f
}

// free tells whether a gateway could have an address.
func (d *doctor) free(ctx context.Context, addr string) finding {
	f := finding{Check: "http", About: addr, State: fine}
	_, port, err := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	if err != nil || n == 0 {
		f.Found = "a gateway here would take any port for HTTP, or none"
		return f
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", reachable(addr))
	if err != nil {
		f.Found = fmt.Sprintf("nobody listens at %s: `ferrule up` can", addr)
		return f
	}
	conn.Close()
	f.State, f.Next = wrong, "end it, or have `ferrule up` listen elsewhere: --listen 127.0.0.1:0 takes any free port"
	who := "another program"
	if p := portHolder(d.root, n); p.pid != 0 {
		who = p.String()
	}
	if _, err := askHealth(ctx, addr); err == nil {
		who = "the gateway of another data directory"
		f.Next = elsewhere + "; --listen 127.0.0.1:0 takes any free port"
	}
	f.Found = fmt.Sprintf("%s listens at %s: `ferrule up` would not start", who, addr)
	return f
}

// healthz is what /healthz tells.
type healthz struct {
	Status  string `json:"status"`
	Journal string `json:"journal"`
}

// askHealth asks a gateway at an address how it is.
func askHealth(ctx context.Context, addr string) (h healthz, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+reachable(addr)+"/healthz", nil)
	if err != nil {
		return h, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return h, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&h)
	if err == nil && (h.Status == "" || h.Journal == "") {
		err = errors.New("what answers is no gateway")
	}
	return h, err
}

// reachable is an address to dial, for one to listen on.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("localhost", port)
	}
	return addr
}
