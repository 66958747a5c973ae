package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/device/transport/serial"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/permission"
	"github.com/ferrulehq/ferrule/internal/testenv/source"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// lines returns findings as lines: state, check, finding, next step.
func lines(all []Finding) []string {
	var texts []string
	for _, f := range all {
		line := fmt.Sprintf("%s %s: %s", f.State, f.Check, f.Found)
		if f.Next != "" {
			line += " → " + f.Next
		}
		texts = append(texts, line)
	}
	return texts
}

// wantLines compares findings with the beginnings of lines.
func wantLines(t *testing.T, name string, all []Finding, want ...string) {
	t.Helper()
	got := lines(all)
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s:\n got %q\nwant %q", name, got, want)
	}
}

// quietConfig points to an empty configuration directory and clears the environment.
func quietConfig(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"FERRULE_CONFIG", "FERRULE_LISTEN", "SERIAL_PORT", "SERIAL_BAUD", "DEVICES"} {
		t.Setenv(name, "")
	}
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("AppData", dir)
	t.Setenv("HOME", dir)
	return dir
}

// TestChecks checks that a check that hangs or panics is reported and does not hide the
// others.
func TestChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		start := time.Now()
		all := runChecks(t.Context(), checkTime, []check{
			{"data", "journal", func(context.Context) []Finding { <-hang; return nil }},
			{"data", "log", func(context.Context) []Finding { panic("no /proc") }},
			{"ports", "port", func(ctx context.Context) []Finding {
				<-ctx.Done()
				return []Finding{{Check: "port", State: Fine, Found: "so far\x1b[31m"}}
			}},
		})
		if took := time.Since(start); took > checkTime+lateTime {
			t.Errorf("it took %v", took)
		}
		wantLines(t, "in time", all, "note journal: this check took too long → ", "note log: this check failed: no /proc → ", "fine port: so far [31m")
		if all[0].Area != "data" || all[2].Area != "ports" {
			t.Errorf("got %+v", all)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		start := time.Now()
		d := &Doctor{ask: func(context.Context) gatewayState { <-hang; return gatewayState{} }}
		if k := d.askInTime(t.Context()); k.err != errNoAnswer || time.Since(start)+checkTime+lateTime > 5*time.Second {
			t.Errorf("got %+v after %v", k, time.Since(start))
		}
	})
}

func TestVersions(t *testing.T) {
	for name, test := range map[string]struct {
		gateway gatewayState
		want    []string
	}{
		"none":     {gatewayState{err: control.ErrNoGateway}, []string{"fine ferrule: ferrule "}},
		"the same": {gatewayState{status: builtin.StatusOutput{Version: "1.0"}}, []string{"fine ferrule: ", "fine gateway: the running gateway has the same version"}},
		"another":  {gatewayState{status: builtin.StatusOutput{Version: "0.1"}}, []string{"fine ferrule: ", "note gateway: the running gateway is ferrule 0.1, this command is 1.0 → restart"}},
	} {
		wantLines(t, name, (&Doctor{version: "1.0", gateway: test.gateway}).versions(t.Context()), test.want...)
	}
}

func TestDirectory(t *testing.T) {
	const me = 1000
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "file")
	for _, err := range []error{
		os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, "lock"), nil, 0o600), os.WriteFile(file, nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	owned := func(dir, rest int) func(os.FileInfo) (int, bool) {
		return func(info os.FileInfo) (int, bool) {
			if info.IsDir() {
				return dir, true
			}
			return rest, true
		}
	}
	const gb = 1 << 30
	for name, test := range map[string]struct {
		data  string
		deny  error
		owner func(os.FileInfo) (int, bool)
		me    int
		free  uint64
		want  []string
	}{
		"good":        {data, nil, owned(me, me), me, gb, []string{"fine directory: " + data + " is writable", "fine space: 1024 MB free"}},
		"no home":     {"", nil, nil, me, gb, []string{"wrong directory: there is no home directory for data → name another"}},
		"a file":      {file, nil, nil, me, gb, []string{"wrong directory: " + file + " is not a directory → name another"}},
		"in a file":   {filepath.Join(file, "x"), nil, nil, me, gb, []string{"wrong directory: " + file}},
		"not yet":     {filepath.Join(dir, "a/b"), nil, nil, me, gb, []string{"fine directory: " + filepath.Join(dir, "a/b") + " does not exist yet", "fine space: "}},
		"never":       {filepath.Join(dir, "a/b"), os.ErrPermission, nil, me, gb, []string{"wrong directory: " + filepath.Join(dir, "a/b") + " does not exist and cannot be created: " + dir + ": permission denied → "}},
		"read only":   {data, errors.New("read-only file system"), owned(me, me), me, gb, []string{"wrong directory: " + data + " is not writable: read-only file system → name another"}},
		"root's":      {data, os.ErrPermission, owned(0, 0), me, gb, []string{"wrong directory: " + data + " is not writable: permission denied", "wrong owner: files of another user in the data directory: " + data + ", lock → run `sudo chown -R $USER " + data}},
		"root's lock": {data, nil, owned(me, 0), me, gb, []string{"fine directory: ", "wrong owner: files of another user in the data directory: lock → run `sudo chown", "fine space: "}},
		"as root":     {data, nil, owned(me, me), 0, gb, []string{"fine directory: ", "note owner: you are root, and " + data + " belongs to user 1000", "fine space: "}},
		"nobody's":    {data, nil, func(os.FileInfo) (int, bool) { return 0, false }, -1, gb, []string{"fine directory: ", "fine space: "}},
		"little":      {data, nil, owned(me, me), me, 200 << 20, []string{"fine directory: ", "note space: 200 MB free → free some space soon"}},
		"full":        {data, nil, owned(me, me), me, 1, []string{"fine directory: ", "wrong space: 0 MB free → free some space: "}},
	} {
		d := &Doctor{data: test.data, disk: disk{
			test.me, func(string) error { return test.deny }, test.owner, func(string) (uint64, error) { return test.free, nil },
		}}
		wantLines(t, name, d.directory(t.Context()), test.want...)
	}

	// One that others can write to, with a database that they can read.
	for _, err := range []error{os.WriteFile(filepath.Join(data, "history.db"), nil, 0o600), os.Chmod(filepath.Join(data, "history.db"), 0o644), os.Chmod(data, 0o777)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	d := &Doctor{data: data, disk: disk{
		me, func(string) error { return nil }, owned(me, me), func(string) (uint64, error) { return 0, errors.New("not told") },
	}}
	if info, err := os.Stat(data); err == nil && info.Mode().Perm() == 0o777 { // Windows has no such thing
		wantLines(t, "open", d.directory(t.Context()), "fine directory: ", "wrong permissions: other users can access files of the data directory: "+data+", history.db → run `chmod -R go= "+data)
	}
}

func TestJournal(t *testing.T) {
	d := &Doctor{data: t.TempDir()}
	wantLines(t, "none", d.journal(t.Context()), "fine journal: there is no journal yet")
	j, err := journal.Open(d.data, journal.DefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := j.Append(ferrule.Entry{Tool: "gpio_write", Device: "robot"}, false); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	wantLines(t, "whole", d.journal(t.Context()), "fine journal: the journal is intact: 3 records")
	path := filepath.Join(d.data, journal.FileName)
	data, _ := os.ReadFile(path)
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), "robot", "rabot", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantLines(t, "altered", d.journal(t.Context()), "wrong journal: the journal is damaged: record 1 ")
	wantLines(t, "no data", (&Doctor{}).journal(t.Context()))
}

func TestLog(t *testing.T) {
	d := &Doctor{data: t.TempDir(), now: func() time.Time { return time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC) }}
	path := filepath.Join(d.data, datadir.LogFile)
	where := "`ferrule mcp` logs to " + path
	wantLines(t, "none", d.log(t.Context()), "fine log: "+where+", which does not exist yet")
	for name, test := range map[string]struct{ text, want string }{
		"no error":   {"time=2026-05-02T10:00:00Z level=INFO msg=x\n", "fine log: " + where},
		"an old one": {"time=2026-04-02T10:00:00Z level=ERROR msg=old\n", "fine log: " + where + "; its last error: time=2026-04-02T10:00:00Z level=ERROR msg=old"},
		"a new one": {
			"time=2026-05-02T09:00:00Z level=ERROR msg=first\ntime=2026-05-02T10:00:00Z level=ERROR msg=last\ntime=2026-05-02T11:00:00Z level=INFO msg=\" level=ERROR\"\n",
			"note log: " + where + "; its last error: time=2026-05-02T10:00:00Z level=ERROR msg=last → read",
		},
		"a long one": {strings.Repeat("x", 1<<20) + "\ntime=2026-05-02T10:00:00Z level=ERROR msg=last\n", "note log: " + where + "; its last error: time="},
		"rubbish":    {"\x00\xff level=ERROR \x1b", "fine log: " + where + "; its last error: "},
	} {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		wantLines(t, name, d.log(t.Context()), test.want)
	}
}

func TestLockAndSocket(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "left.sock")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		gateway gatewayState
		want    []string
	}{
		"not told": {gatewayState{socket: "s", err: control.ErrNoGateway}, []string{"fine socket: the control socket will be s"}},
		"free":     {gatewayState{socket: left, lockKnown: true, err: control.ErrNoGateway}, []string{"fine lock: the data directory is not locked", "fine socket: the control socket is " + left + ", left by a gateway that ended"}},
		"pending":  {gatewayState{socket: left, lockKnown: true, lock: process{7, "ferrule up"}}, []string{"fine lock: process 7 (ferrule up) has the data directory locked", "fine socket: the control socket is " + left}},
		"too long": {gatewayState{socketErr: errors.New("too long")}, []string{"wrong socket: the control socket cannot be created: too long → name another"}},
	} {
		d := &Doctor{data: dir, gateway: test.gateway}
		wantLines(t, name, append(d.lock(t.Context()), d.socket(t.Context())...), test.want...)
	}
}

func TestConfig(t *testing.T) {
	dir := quietConfig(t)
	path := config.DefaultPath()
	overlays := filepath.Join(filepath.Dir(path), "overlays")
	if err := os.MkdirAll(overlays, 0o700); err != nil || !strings.HasPrefix(path, dir) {
		t.Fatal(path, err)
	}
	none, careful := "fine overlays: there are no overlays in "+overlays, "fine policy: policy: preset careful"
	d := &Doctor{}
	wantLines(t, "none", d.config(t.Context()), "fine file: "+path+" does not exist; the defaults are used", none, careful)
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"good":     {"calls: {deadline: 5s}", []string{"fine file: " + path + " is valid", none, careful}},
		"wrong":    {"calls:\n  dedline: 5s\n", []string{"wrong file: " + path + ": line 2: unknown key \"dedline\"; did you mean deadline?"}},
		"tokens":   {"auth: {tokens: [{name: a, token: 0123456789abcdef}]}", []string{"fine file: ", none, careful, "fine tokens: tokens of agents: 1"}},
		"open":     {"agents: {open_loopback: true}", []string{"fine file: ", none, careful, "note tokens: every user of this machine can call tools over HTTP"}},
		"no token": {"auth: {tokens: [{name: a, file: a.token}]}", []string{"fine file: ", none, careful, "wrong tokens: auth.tokens[0].file: the file does not exist"}},
	} {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := d.config(t.Context())
		wantLines(t, name, got, test.want...)
		if strings.Contains(fmt.Sprint(got), "0123456789abcdef") {
			t.Error("a token is shown")
		}
	}
	os.Remove(path)
	for name, test := range map[string]struct{ text, want string }{
		"good":  {"tools: {sweep: {effect: reads}}", "fine overlays: overlays in " + overlays + ": 1"},
		"wrong": {"tools: {sweep: {effect: dangerous}}", "wrong overlays: " + filepath.Join(overlays, "a.yaml") + ": line 1: tools.sweep.effect: "},
	} {
		if err := os.WriteFile(filepath.Join(overlays, "a.yaml"), []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		wantLines(t, name+" overlay", d.config(t.Context()), "fine file: ", test.want, careful)
	}
	t.Setenv("FERRULE_CONFIG", "missing.yaml")
	wantLines(t, "missing", d.config(t.Context()), "wrong file: open missing.yaml")
}

func TestRunning(t *testing.T) {
	us := process{7, "ferrule up"}
	for name, test := range map[string]struct {
		gateway gatewayState
		want    []string
	}{
		"well":          {gatewayState{process: us, status: builtin.StatusOutput{Summary: "1 device is online."}}, []string{"fine running: process 7 (ferrule up) is running. 1 device is online."}},
		"nameless":      {gatewayState{}, []string{"fine running: the gateway is running. "}},
		"none":          {gatewayState{err: control.ErrNoGateway}, []string{"note running: no gateway is running → run `ferrule up`"}},
		"no socket":     {gatewayState{err: control.ErrNoGateway, lock: us}, []string{"wrong running: process 7 (ferrule up) has the data directory locked but does not answer → it may have just started; try again; if it still hangs, end it: kill 7"}},
		"mute":          {gatewayState{err: errNoAnswer, process: us}, []string{"wrong running: process 7 (ferrule up) cannot be reached: no answer within 900ms → try again; if it still hangs, end it: kill 7"}},
		"another's":     {gatewayState{err: ferrule.Errorf(ferrule.Denied, "%w: it is root's", control.ErrNotAllowed).WithHint("ask root")}, []string{"wrong running: the gateway cannot be reached: you may not use this gateway: it is root's → ask root"}},
		"the service":   {gatewayState{service: true, process: us, status: builtin.StatusOutput{Summary: "1 device is online."}}, []string{"fine running: the service of this machine is running. 1 device is online."}},
		"limited":       {gatewayState{err: ferrule.Errorf(ferrule.Limited, "too many calls").WithHint("wait")}, []string{"note running: the gateway is running but refused to report its status: too many calls → wait"}},
		"no path to it": {gatewayState{err: errNoAnswer, socketErr: errNoAnswer}, nil},
	} {
		wantLines(t, name, (&Doctor{gateway: test.gateway}).running(t.Context()), test.want...)
	}
}

func TestNodes(t *testing.T) {
	of := func(n *builtin.Nodes) gatewayState { return gatewayState{status: builtin.StatusOutput{Nodes: n}} }
	for name, test := range map[string]struct {
		gateway gatewayState
		want    []string
	}{
		"none":  {gatewayState{err: control.ErrNoGateway}, nil},
		"alone": {of(nil), nil},
		"among": {of(&builtin.Nodes{Node: "a", Tenant: "acme", Working: true, Others: []string{"b", "c"}}), []string{"fine nodes: this is a node of acme; others online: b, c"}},
		"only":  {of(&builtin.Nodes{Node: "a", Tenant: "acme", Working: true}), []string{"note nodes: this is the only node of acme that is online"}},
		"cut":   {of(&builtin.Nodes{Node: "a", Tenant: "acme", Since: time.Now(), Reason: "no server"}), []string{"wrong nodes: the cluster connection has failed since "}},
	} {
		wantLines(t, name, (&Doctor{gateway: test.gateway}).nodes(t.Context()), test.want...)
	}
}

func TestHistory(t *testing.T) {
	d := &Doctor{gateway: gatewayState{status: builtin.StatusOutput{NotRecording: "there is no room"}}}
	wantLines(t, "stopped", d.history(t.Context()), "wrong history: measurements are not recorded: there is no room → free some disk space")
	wantLines(t, "recording", (&Doctor{}).history(t.Context()))
}

func TestEndpoints(t *testing.T) {
	d := &Doctor{gateway: gatewayState{status: builtin.StatusOutput{Endpoints: []string{"home is disconnected from ws://h/mcp/ since 14:02:10: it is gone"}}}}
	wantLines(t, "away", d.endpoints(t.Context()), "wrong endpoints: home is disconnected from ws://h/mcp/ since 14:02:10: it is gone")
	wantLines(t, "connected", (&Doctor{}).endpoints(t.Context()))
	d.gateway.status.Brokers = []string{"broker home at mqtt://h:1883 is not connected since 14:02:10: connection refused"}
	wantLines(t, "unreachable", d.brokers(t.Context()), "wrong brokers: broker home at mqtt://h:1883 is not connected since 14:02:10: connection refused")
	d.gateway.status.Hooks = []string{"hook quiet: it does not answer"}
	wantLines(t, "failing", d.hooks(t.Context()), "wrong hooks: hook quiet: it does not answer → correct the hook, or remove it")
	wantLines(t, "working", (&Doctor{}).hooks(t.Context()))
}

func TestHTTP(t *testing.T) {
	quietConfig(t)
	answer := func(code int, body string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprint(w, body)
		}))
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := unused.Addr().String()
	unused.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	well, full := answer(200, `{"status":"ok","journal":"ok"}`), answer(503, `{"status":"failing","journal":"failing"}`)
	other := answer(200, "<html>")
	for name, test := range map[string]struct {
		gateway gatewayState
		listen  string
		want    []string
	}{
		"served":           {gatewayState{status: builtin.StatusOutput{Listen: well}}, "", []string{"fine http: http://" + well + "/healthz answers"}},
		"ill":              {gatewayState{status: builtin.StatusOutput{Listen: full}}, "", []string{"wrong http: the gateway is failing: it cannot write its journal → see why in its log"}},
		"not served":       {gatewayState{status: builtin.StatusOutput{Listen: nobody}}, "", []string{"wrong http: http://" + nobody + "/healthz does not answer: "}},
		"served by others": {gatewayState{status: builtin.StatusOutput{Listen: other}}, "", []string{"wrong http: http://" + other + "/healthz does not answer: "}},
		"no HTTP":          {gatewayState{}, "", []string{"fine http: the gateway does not serve HTTP"}},
		"mute":             {gatewayState{err: errNoAnswer}, well, nil},
		"just beginning":   {gatewayState{err: control.ErrNoGateway, lock: process{pid: 7}}, well, nil},
		"free":             {gatewayState{err: control.ErrNoGateway}, nobody, []string{"fine http: " + nobody + " is free"}},
		"any port":         {gatewayState{err: control.ErrNoGateway}, "127.0.0.1:0", []string{"fine http: a gateway would use any free port"}},
		"readable":         {gatewayState{err: control.ErrNoGateway}, "0.0.0.0:0", []string{"fine http: a gateway would use any free port", "note tls: agents are served at 0.0.0.0:0 without TLS: everybody on the network can read the tokens → run `ferrule tls init`"}},
		"another gateway":  {gatewayState{err: control.ErrNoGateway}, well, []string{"wrong http: the gateway of another data directory uses " + well}},
		"another program":  {gatewayState{err: control.ErrNoGateway}, other, []string{"wrong http: another program uses " + other + ": `ferrule up` cannot start → end it, or"}},
		"a silent program": {gatewayState{err: control.ErrNoGateway}, silent.Addr().String(), []string{"wrong http: another program uses "}},
	} {
		t.Setenv("FERRULE_LISTEN", test.listen)
		d := &Doctor{root: t.TempDir(), gateway: test.gateway}
		limit := wait.Ample
		if name == "a silent program" {
			limit = 2 * time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		wantLines(t, name, d.http(ctx), test.want...)
		cancel()
	}
	for addr, want := range map[string]string{"0.0.0.0:3377": "localhost:3377", ":3377": "localhost:3377", "[::]:1": "localhost:1", "127.0.0.1:3377": "127.0.0.1:3377", "x": "x"} {
		if got := reachable(addr); got != want {
			t.Errorf("%s is reached at %s, want %s", addr, got, want)
		}
	}
}

func TestPorts(t *testing.T) {
	quietConfig(t)
	uno := serial.PortStatus{Path: "/dev/ttyACM0", USB: true, VID: "2341", PID: "0043", Product: "Arduino Uno", Maker: "Arduino"}
	clone := serial.PortStatus{Path: "/dev/ttyUSB0", USB: true, VID: "1A86", PID: "7523", Product: "USB Serial", Bridge: "WCH CH340"}
	pi := serial.PortStatus{Path: "/dev/ttyAMA0"}
	with := func(p serial.PortStatus, change func(p *serial.PortStatus)) []serial.PortStatus {
		change(&p)
		return []serial.PortStatus{p}
	}
	denied := func(why permission.Denied, group string) func(p *serial.PortStatus) {
		return func(p *serial.PortStatus) { p.Denied, p.Group = why, group }
	}
	inUse := func(pid int) func(p *serial.PortStatus) {
		return func(p *serial.PortStatus) { p.Holder = serial.Process{ID: pid, Name: "minicom"} }
	}
	const isUno, isClone = `/dev/ttyACM0 ("Arduino Uno"), a board by Arduino: `, `/dev/ttyUSB0 ("USB Serial"), USB bridge WCH CH340: `
	for name, test := range map[string]struct {
		named string
		ports []serial.PortStatus
		err   error
		want  []string
	}{
		"none":     {"", nil, nil, []string{"note port: no serial port found → "}},
		"not told": {"", nil, errors.New("no /dev"), []string{"note port: not all serial ports could be listed: no /dev"}},
		"free": {"", []serial.PortStatus{uno, clone, pi}, nil, []string{
			"fine port: " + isUno + "can be opened", "fine port: " + isClone + "can be opened; `auto` lists it", "fine port: /dev/ttyAMA0: can be opened if you name it",
		}},
		"named":              {"/dev/ttyUSB0", []serial.PortStatus{clone}, nil, []string{"fine port: " + isClone + "can be opened"}},
		"absent":             {"/dev/ttyUSB7", []serial.PortStatus{{Path: "/dev/ttyUSB7", Absent: "there is no port /dev/ttyUSB7"}}, nil, []string{"wrong port: there is no port /dev/ttyUSB7 → it is named in the configuration"}},
		"a stranger":         {"", with(clone, denied(permission.NotMember, "dialout")), nil, []string{"wrong port: " + isClone + "permission denied; you are not in group dialout → run `sudo usermod -aG dialout $USER`"}},
		"too early":          {"", with(uno, denied(permission.NeedsLogin, "uucp")), nil, []string{"wrong port: " + isUno + "permission denied; you were added to group uucp after you logged in → log out and in"}},
		"nobody":             {"", with(uno, denied(permission.NoGroup, "")), nil, []string{"wrong port: " + isUno + "permission denied, and no group has access → install the udev rule"}},
		"the console":        {"", with(pi, denied(permission.NoGroup, "")), nil, []string{"note port: /dev/ttyAMA0: permission denied"}},
		"the console, named": {"/dev/ttyAMA0", with(pi, denied(permission.NotMember, "dialout")), nil, []string{"wrong port: /dev/ttyAMA0: permission denied"}},
		"ours":               {"", with(uno, inUse(7)), nil, []string{"fine port: " + isUno + "in use by the gateway"}},
		"another's":          {"", with(uno, inUse(8)), nil, []string{"wrong port: " + isUno + "in use by minicom (process 8) → close that program"}},
		"a printer":          {"", with(clone, inUse(8)), nil, []string{"note port: " + isClone + "in use by minicom (process 8)"}},
		"unknown id":         {"", with(clone, func(p *serial.PortStatus) { p.VID, p.Bridge = "1234", "" }), nil, []string{`fine port: /dev/ttyUSB0 ("USB Serial"), USB ID 1234:7523: can`}},
	} {
		t.Setenv("SERIAL_PORT", test.named)
		d := &Doctor{gateway: gatewayState{process: process{pid: 7}}, survey: func(_ context.Context, named ...string) ([]serial.PortStatus, error) {
			if strings.Join(named, " ") != test.named {
				t.Errorf("%s: named ports %q", name, named)
			}
			return test.ports, test.err
		}}
		wantLines(t, name, d.ports(t.Context()), test.want...)
	}
}

// machineOf returns a directory with files that stands for the root of a machine.
func machineOf(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestGrabbers(t *testing.T) {
	for name, test := range map[string]struct {
		system string
		files  map[string]string
		want   []string
	}{
		"nothing is told": {"linux", nil, []string{"fine udev: our udev rule is not installed"}},
		"another system":  {"darwin", map[string]string{"proc/1/comm": "brltty\n"}, nil},
		"nobody":          {"linux", map[string]string{"proc/1/comm": "init\n", "proc/self/comm": "brltty\n"}, []string{"fine udev: our udev rule is not installed"}},
		"both": {"linux", map[string]string{"proc/12/comm": "ModemManager\n", "proc/13/comm": "brltty\n"}, []string{
			"note modemmanager: ModemManager is running: ", "note brltty: brltty is running: ", "fine udev: our udev rule is not installed",
		}},
		"a rule": {"linux", map[string]string{"proc/12/comm": "ModemManager\n", "etc/udev/rules.d/60-ferrule.rules": ""}, []string{
			"fine modemmanager: ModemManager is running; our udev rule", "fine udev: our udev rule is installed: ",
		}},
	} {
		d := &Doctor{system: test.system, root: machineOf(t, test.files)}
		wantLines(t, name, append(d.grabbers(t.Context()), d.udev(t.Context())...), test.want...)
	}
}

func TestBoards(t *testing.T) {
	online := builtin.DescribedDevice{ID: "robot", State: "online", Trust: "adopted", Kind: "x", Tools: 12}
	with := func(change func(d *builtin.DescribedDevice)) builtin.DescribedDevice {
		d := online
		change(&d)
		return d
	}
	offline := func(reason string) builtin.DescribedDevice {
		return with(func(d *builtin.DescribedDevice) { d.State, d.Reason = "offline", reason })
	}
	pending := func(id string) builtin.DescribedDevice {
		return with(func(d *builtin.DescribedDevice) { d.ID, d.Trust = id, "pending" })
	}
	many := make([]builtin.DescribedDevice, 60)
	for i := range many {
		many[i] = online
	}
	many[59] = offline("it hangs")
	for name, test := range map[string]struct {
		gateway gatewayState
		list    builtin.ListDevicesOutput
		err     error
		want    []string
	}{
		"no gateway": {gatewayState{err: control.ErrNoGateway}, builtin.ListDevicesOutput{}, nil, nil},
		"mute":       {gatewayState{}, builtin.ListDevicesOutput{}, errors.New("busy"), []string{"note board: the gateway did not list its devices: busy"}},
		"none":       {gatewayState{}, builtin.ListDevicesOutput{}, nil, []string{"note board: the gateway has no devices → run `ferrule up"}},
		"some, worst first": {gatewayState{}, builtin.ListDevicesOutput{Devices: []builtin.DescribedDevice{
			online,
			offline("opening /dev/ttyACM0: permission denied"),
			offline("no longer in reach"),
			with(func(d *builtin.DescribedDevice) { d.Trust = "pending" }),
			with(func(d *builtin.DescribedDevice) {
				d.State, d.Reason = "released", "was released for other programs until noon"
			}),
			with(func(d *builtin.DescribedDevice) { d.Unusable = 3 }),
		}}, nil, []string{
			"wrong board: robot is offline, since ",
			"note board: robot is offline since ",
			"note board: robot was released for other programs until noon → it reconnects by itself",
			"note tools: robot has tools that cannot be used: 3 → run `ferrule tools robot`",
			"note board: robot was found and is not adopted → run `ferrule adopt robot`",
			"fine board: robot is online, with 12 tools",
			"fine board: robot is online, with 12 tools",
		}},
		"a new Home Assistant": {gatewayState{}, builtin.ListDevicesOutput{Devices: []builtin.DescribedDevice{
			pending("ac"), pending("bed-light"), pending("demo"), pending("garage"),
			with(func(d *builtin.DescribedDevice) {
				d.Protocol, d.State, d.Reason = "homeassistant", "offline", "no longer exposed to Assist"
			}),
		}}, nil, []string{
			"note board: 4 devices were found and are not adopted: ac, bed-light, demo, garage → run `ferrule adopt DEVICE...`",
			"note board: offline devices of Home Assistant: robot → `ferrule devices` says why",
		}},
	} {
		d := &Doctor{gateway: test.gateway, list: func(context.Context) (builtin.ListDevicesOutput, error) { return test.list, test.err }}
		wantLines(t, name, d.devices(t.Context()), test.want...)
	}
	d := &Doctor{list: func(context.Context) (builtin.ListDevicesOutput, error) {
		return builtin.ListDevicesOutput{Devices: many, Total: 1_000_000}, nil
	}}
	all := d.devices(t.Context())
	if len(all) != 51 || all[0].State != Wrong || all[50].Found != "and 999950 more" {
		t.Errorf("got %d findings, %+v and %+v", len(all), all[0], all[len(all)-1])
	}
}

func TestEnvironment(t *testing.T) {
	for name, test := range map[string]struct {
		environ, want []string
	}{
		"nothing": {[]string{"PATH=/bin", "FERRULE_DATA="}, []string{"fine variable: no variables are set"}},
		"some":    {[]string{"FERRULE_DATA=/d", "DEVICES=a:/dev/x"}, []string{"fine variable: DEVICES=a:/dev/x", "fine variable: FERRULE_DATA=/d"}},
		"a typo":  {[]string{"FERRULE_DIR=/d"}, []string{"note variable: FERRULE_DIR=/d: unknown variable → known variables are FERRULE_CONFIG, FERRULE_DATA, FERRULE_LISTEN"}},
		"secret":  {[]string{"FERRULE_TOKEN=hush"}, []string{"note variable: FERRULE_TOKEN=(not shown): unknown variable"}},
		"idle":    {[]string{"SERIAL_BAUD=9600"}, []string{"note variable: SERIAL_BAUD=9600: has no effect without SERIAL_PORT → "}},
		"both":    {[]string{"SERIAL_PORT=COM3", "DEVICES=a:COM3"}, []string{"note variable: DEVICES=a:COM3: has no effect because SERIAL_PORT is set → ", "fine variable: SERIAL_PORT=COM3"}},
		"wrong":   {[]string{"SERIAL_PORT=COM3", "SERIAL_BAUD=fast"}, []string{"fine variable: SERIAL_BAUD=fast", "fine variable: SERIAL_PORT=COM3", "wrong devices: SERIAL_BAUD: must be a bit rate such as 115200, got \"fast\" → correct or unset it"}},
		"odd":     {[]string{"", "=C:=x", "FERRULE_"}, []string{"fine variable: no variables are set"}},
	} {
		quietConfig(t)
		for _, text := range test.environ {
			if name, value, _ := strings.Cut(text, "="); slices.Contains(variables, name) {
				t.Setenv(name, value)
			}
		}
		got := (&Doctor{environ: test.environ}).environment(t.Context())
		wantLines(t, name, got, test.want...)
		if strings.Contains(fmt.Sprint(got), "hush") {
			t.Error("a secret is shown")
		}
	}
}

func TestSummary(t *testing.T) {
	finding := func(area string, state Health) Finding {
		return Finding{Area: area, Check: area, State: state, Found: "x"}
	}
	problems, fine := Summary([]Finding{finding("data", Fine), finding("data", Note), finding("ports", Wrong), finding("boards", Fine), finding("boards", Fine)})
	wantLines(t, "problems", problems, "wrong ports: x", "note data: x")
	if fine != "data 1, boards 2" {
		t.Errorf("fine: %q", fine)
	}
}

// TestConfigOfGateway checks which file is examined: the one that the running gateway has
// read, else the one that the next one would read.
func TestConfigOfGateway(t *testing.T) {
	quietConfig(t)
	data := t.TempDir()
	if err := datadir.SetConfig(data, "/etc/lab.yaml"); err != nil {
		t.Fatal(err)
	}
	none := gatewayState{err: control.ErrNoGateway}
	for name, test := range map[string]struct {
		doctor   Doctor
		variable string
		want     string
		named    bool
	}{
		"running":           {Doctor{data: data}, "/var.yaml", "/etc/lab.yaml", true},
		"ended":             {Doctor{data: data, gateway: none}, "", "/etc/lab.yaml", true},
		"ended, a variable": {Doctor{data: data, gateway: none}, "/var.yaml", "/var.yaml", true},
		"named":             {Doctor{data: data, file: "/own.yaml"}, "/var.yaml", "/own.yaml", true},
		"another":           {Doctor{data: t.TempDir(), gateway: none}, "", config.DefaultPath(), false},
		"the service":       {Doctor{data: data, gateway: gatewayState{service: true}}, "/var.yaml", control.ServiceConfig, true},
		"no data":           {Doctor{gateway: none}, "", config.DefaultPath(), false},
	} {
		t.Setenv("FERRULE_CONFIG", test.variable)
		if got, named := test.doctor.configFile(); got != test.want || named != test.named {
			t.Errorf("%s: got %s, %v", name, got, named)
		}
	}
}

// TestSource checks that the variables and offline reasons of the doctor are those of the
// source.
func TestSource(t *testing.T) {
	texts := source.Strings(t)
	for _, name := range regexp.MustCompile(`\bFERRULE_[A-Z]+\b`).FindAllString(texts, -1) {
		if !slices.Contains(variables, name) {
			t.Errorf("%s is read but not in variables", name)
		}
	}
	for _, reason := range absent {
		if strings.Count(texts, reason+"\n") < 2 {
			t.Errorf("no device is offline with reason %q", reason)
		}
	}
}
