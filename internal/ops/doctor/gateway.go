package doctor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// gatewayState is what is known about the gateway of the data directory.
type gatewayState struct {
	socket    string
	socketErr error
	service   bool    // it is the packaged service, not the gateway of the data directory
	process   process // that listens on the socket, if the system tells
	lockKnown bool    // the system knows who holds locks
	lock      process // that has the data directory locked
	status    builtin.StatusOutput
	err       error // why there is no status; control.ErrNoGateway if no gateway is running
}

var errNoAnswer = fmt.Errorf("no answer within %v", askTime)

// process is a process of this machine. Its ID is 0 if it is unknown.
type process struct {
	pid     int
	command string
}

func (p process) String() string {
	if p.command == "" {
		return fmt.Sprintf("process %d", p.pid)
	}
	return fmt.Sprintf("process %d (%s)", p.pid, ferrule.OneLine(ferrule.Clean(p.command, ferrule.MaxText), 200))
}

// askGateway asks the gateway for its status.
func (d *Doctor) askGateway(ctx context.Context) (s gatewayState) {
	if d.data == "" {
		s.err = control.ErrNoGateway
		return s
	}
	s.lock.pid, s.lockKnown = lockHolder(d.root, filepath.Join(d.data, datadir.LockFile))
	s.lock.command = commandOf(d.root, s.lock.pid)
	if s.socket, s.socketErr = control.FindSocket(d.data); s.socketErr != nil {
		s.err = s.socketErr
		return s
	}
	s.status, s.err = askStatus(ctx, s.socket)
	if d.service && errors.Is(s.err, control.ErrNoGateway) && s.lock.pid == 0 {
		if status, err := askStatus(ctx, control.ServiceSocket); !errors.Is(err, control.ErrNoGateway) {
			s.socket, s.service, s.status, s.err = control.ServiceSocket, true, status, err
		}
	}
	s.process.pid = listenerOf(ctx, s.socket)
	s.process.command = commandOf(d.root, s.process.pid)
	return s
}

// askStatus asks the gateway at a socket for its status.
func askStatus(ctx context.Context, socket string) (builtin.StatusOutput, error) {
	client := control.NewClient(socket)
	defer client.Close()
	status, err := control.CallBuiltin[builtin.StatusOutput](ctx, client, "status", builtin.StatusInput{})
	if err != nil && ctx.Err() != nil {
		err = errNoAnswer
	}
	return status, err
}

// listenerOf returns the process that listens on a socket, or 0 if it is unknown.
func listenerOf(ctx context.Context, socket string) int {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0
	}
	defer conn.Close()
	return peerOf(conn.(*net.UnixConn))
}

// running checks that a gateway runs and answers.
func (d *Doctor) running(context.Context) []Finding {
	g := d.gateway
	if g.socketErr != nil {
		return nil // socket reports that
	}
	f := Finding{Check: "running", About: d.data, State: Wrong, Next: "try again; if it still hangs, end it"}
	who := "the gateway"
	if g.service {
		who = "the service of this machine"
	}
	if g.process.pid != 0 && !g.service {
		who = g.process.String()
		f.Next = fmt.Sprintf("%s: kill %d", f.Next, g.process.pid)
	}
	var refused *ferrule.Error
	switch {
	case g.err == nil:
		f.State, f.Next = Fine, ""
		f.Found = fmt.Sprintf("%s is running. %s", who, g.status.Summary)
	case errors.Is(g.err, control.ErrNoGateway) && g.lock.pid != 0:
		f.Found = fmt.Sprintf("%s has the data directory locked but does not answer", g.lock)
		f.Next = fmt.Sprintf("it may have just started; %s: kill %d", f.Next, g.lock.pid)
	case errors.Is(g.err, control.ErrNoGateway):
		f.State, f.Found = Note, "no gateway is running"
		f.Next = "run `ferrule up`; agents that start `ferrule mcp` do not need it"
	case errors.Is(g.err, control.ErrNotAllowed) && errors.As(g.err, &refused):
		f.Found, f.Next = fmt.Sprintf("%s cannot be reached: %s", who, refused.Message), refused.Hint
	case errors.As(g.err, &refused):
		f.State, f.Found, f.Next = Note, fmt.Sprintf("%s is running but refused to report its status: %v", who, refused.Message), refused.Hint
	default:
		f.Found = fmt.Sprintf("%s cannot be reached: %v", who, g.err)
	}
	return []Finding{f}
}

// nodes checks the connection to the cluster.
func (d *Doctor) nodes(context.Context) []Finding {
	n := d.gateway.status.Nodes
	if d.gateway.err != nil || n == nil {
		return nil
	}
	f := Finding{Check: "nodes", About: n.Node, State: Fine}
	switch {
	case !n.Working:
		f.State = Wrong
		f.Found = fmt.Sprintf("the cluster connection has failed since %s: %s. Devices of this gateway still work", ferrule.FormatTime(n.Since), n.Reason)
		f.Next = "check the servers under `cluster:` in the configuration, and the free disk space"
	case len(n.Others) == 0:
		f.State, f.Found = Note, fmt.Sprintf("this is the only node of %s that is online", n.Tenant)
	default:
		f.Found = fmt.Sprintf("this is a node of %s; others online: %s", n.Tenant, strings.Join(n.Others[:min(len(n.Others), 10)], ", "))
	}
	return []Finding{f}
}

// endpoints lists the endpoints that the gateway has no connection to.
func (d *Doctor) endpoints(context.Context) []Finding {
	var all []Finding
	for _, problem := range d.gateway.status.Endpoints {
		all = append(all, Finding{
			Check: "endpoints", State: Wrong, Found: problem,
			Next: "voice agents there do not see your devices. The gateway keeps trying; see docs/how-to/connect-voice-agents.md",
		})
	}
	return all
}

// brokers lists what is wrong with the gateway's MQTT brokers.
func (d *Doctor) brokers(context.Context) []Finding {
	var all []Finding
	for _, problem := range d.gateway.status.Brokers {
		all = append(all, Finding{
			Check: "brokers", State: Wrong, Found: problem,
			Next: "agents do not see all devices there. The gateway keeps trying; see docs/how-to/zigbee2mqtt.md",
		})
	}
	return all
}

// hooks lists the hooks that fail.
func (d *Doctor) hooks(context.Context) []Finding {
	var all []Finding
	for _, problem := range d.gateway.status.Hooks {
		all = append(all, Finding{
			Check: "hooks", State: Wrong, Found: problem,
			Next: "correct the hook, or remove it from `hooks:` in the configuration and run `ferrule reload`; see docs/how-to/hooks.md",
		})
	}
	return all
}

// history tells if what devices measure is not recorded.
func (d *Doctor) history(context.Context) []Finding {
	why := d.gateway.status.NotRecording
	if why == "" {
		return nil
	}
	return []Finding{{
		Check: "history", About: filepath.Join(d.data, datadir.HistoryFile), State: Wrong, Found: "measurements are not recorded: " + why,
		Next: "free some disk space; recording resumes by itself and nothing is lost meanwhile. Devices still work",
	}}
}

// http checks that the gateway serves HTTP. If none is running, it checks that no other
// program uses the address.
func (d *Doctor) http(ctx context.Context) []Finding {
	switch {
	case d.gateway.err == nil:
		return append([]Finding{d.served(ctx, d.gateway.status.Listen)}, d.readable(d.gateway.status.Listen)...)
	case !errors.Is(d.gateway.err, control.ErrNoGateway) || d.gateway.lock.pid != 0:
		return nil // the address may be in use by the gateway itself
	}
	listen := d.settings().Listen
	return append([]Finding{d.free(ctx, listen)}, d.readable(listen)...)
}

// readable tells if tokens are sent over the network without TLS. A container may have
// reasons for that, so it is a note.
func (d *Doctor) readable(addr string) []Finding {
	if d.settings().TLS != (config.TLS{}) || !config.OnNetwork(addr) {
		return nil
	}
	return []Finding{{
		Check: "tls", About: addr, State: Note, Found: fmt.Sprintf("agents are served at %s without TLS: everybody on the network can read the tokens", addr),
		Next: "run `ferrule tls init`, and set tls in ferrule.yaml; see docs/how-to/tls.md",
	}}
}

// served checks the address that the gateway serves.
func (d *Doctor) served(ctx context.Context, addr string) Finding {
	f := Finding{Check: "http", About: addr, State: Fine}
	if addr == "" {
		f.Found = "the gateway does not serve HTTP; agents that start `ferrule mcp` do not need it"
		return f
	}
	scheme := "http"
	h, err := askHealth(ctx, scheme, addr)
	if err != nil {
		if overTLS, failed := askHealth(ctx, "https", addr); failed == nil {
			scheme, h, err = "https", overTLS, nil
		}
	}
	switch {
	case err != nil:
		f.State, f.Found = Wrong, fmt.Sprintf("http://%s/healthz does not answer: %v", addr, err)
		f.Next = "restart the gateway, and check its log"
	case h.Status != "ok":
		f.State, f.Found = Wrong, fmt.Sprintf("the gateway is %s: it cannot write its journal", h.Status)
		f.Next = "see why in its log; calls that change something are refused until then"
	default:
		f.Found = fmt.Sprintf("%s://%s/healthz answers; agents are served at /mcp", scheme, addr)
	}
	return f
}

// free checks whether a gateway could listen at an address.
func (d *Doctor) free(ctx context.Context, addr string) Finding {
	f := Finding{Check: "http", About: addr, State: Fine}
	_, port, err := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	if err != nil || n == 0 {
		f.Found = "a gateway would use any free port for HTTP, or none"
		return f
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", reachable(addr))
	if err != nil {
		f.Found = fmt.Sprintf("%s is free for `ferrule up`", addr)
		return f
	}
	conn.Close()
	f.State, f.Next = Wrong, "end it, or use `ferrule up --listen 127.0.0.1:0` for any free port"
	who := "another program"
	if p := portHolder(d.root, n); p.pid != 0 {
		who = p.String()
	}
	if _, err := askHealth(ctx, "http", addr); err == nil {
		who = "the gateway of another data directory"
		f.Next = otherDirectory + ", or use --listen 127.0.0.1:0 for any free port"
	}
	f.Found = fmt.Sprintf("%s uses %s: `ferrule up` cannot start", who, addr)
	return f
}

// healthz is the answer of /healthz.
type healthz struct {
	Status  string `json:"status"`
	Journal string `json:"journal"`
}

// askHealth asks the gateway at an address for its health.
func askHealth(ctx context.Context, scheme, addr string) (h healthz, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+reachable(addr)+"/healthz", nil)
	if err != nil {
		return h, err
	}
	// The certificate is for another name, and nothing secret is sent.
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return h, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&h)
	if err == nil && (h.Status == "" || h.Journal == "") {
		err = errors.New("the answer is not that of a gateway")
	}
	return h, err
}

// reachable returns the address to dial for an address to listen on.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("localhost", port)
	}
	return addr
}
