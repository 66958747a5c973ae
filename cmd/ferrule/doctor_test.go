package main

import (
	"context"
	"encoding/json"
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
)

// told is findings as lines: state, check, what was found, what to do.
func told(all []finding) []string {
	var lines []string
	for _, f := range all {
		line := fmt.Sprintf("%s %s: %s", f.State, f.Check, f.Found)
		if f.Next != "" {
			line += " → " + f.Next
		}
		lines = append(lines, line)
	}
	return lines
}

// wantTold compares findings with the beginnings of lines.
func wantTold(t *testing.T, name string, all []finding, want ...string) {
	t.Helper()
	got := told(all)
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s:\n got %q\nwant %q", name, got, want)
	}
}

// quietConfig has the config looked for in a directory where there is none.
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

// TestDoctorInTime: a check that hangs, and one that fails, are told of, and do not
// hide the others.
func TestDoctorInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		start := time.Now()
		all := examine(t.Context(), lookTime, []checkup{
			{"data", "journal", func(context.Context) []finding { <-hang; return nil }},
			{"data", "log", func(context.Context) []finding { panic("no /proc") }},
			{"ports", "port", func(ctx context.Context) []finding {
				<-ctx.Done()
				return []finding{{Check: "port", State: fine, Found: "so far\x1b[31m"}}
			}},
		})
		if took := time.Since(start); took > lookTime+moment {
			t.Errorf("it took %v", took)
		}
		wantTold(t, "in time", all, "note journal: it took too long to look → ", "note log: looking here failed: no /proc → ", "fine port: so far [31m")
		if all[0].Area != "data" || all[2].Area != "ports" {
			t.Errorf("got %+v", all)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		start := time.Now()
		d := &doctor{ask: func(context.Context) known { <-hang; return known{} }}
		if k := d.askInTime(t.Context()); k.err != errMute || time.Since(start)+lookTime+moment > 3*time.Second {
			t.Errorf("got %+v after %v", k, time.Since(start))
		}
	})
}

// TestDoctorTells: the keys of the data, and the exit code.
func TestDoctorTells(t *testing.T) {
	well := finding{Area: "data", Check: "log", State: fine, Found: "good"}
	ill := finding{Area: "ports", Check: "port", About: "/dev/x", State: wrong, Found: "one\ntwo", Next: "mend it"}
	for _, test := range []struct {
		json bool
		all  []finding
		err  string
		want string
	}{
		{false, []finding{well, {Area: "data", Check: "space", State: note, Found: "little"}}, "", "data\n  fine   good\n  note   little\n\nNothing is wrong.\n"},
		{false, []finding{well, ill}, "1 thing is wrong", "data\n  fine   good\nports\n  wrong  one\n         two\n         → mend it\n"},
		{true, []finding{}, "", `{"version":"` + version() + `","wrong":0,"notes":0,"findings":[]}` + "\n"},
		{true, []finding{well, ill, ill}, "2 things are wrong", `{"version":"` + version() + `","wrong":2,"notes":0,"findings":[` +
			`{"area":"data","check":"log","state":"fine","found":"good"},` +
			`{"area":"ports","check":"port","about":"/dev/x","state":"wrong","found":"one\ntwo","next":"mend it"},` +
			`{"area":"ports","check":"port","about":"/dev/x","state":"wrong","found":"one\ntwo","next":"mend it"}]}` + "\n"},
	} {
		var out strings.Builder
		a := &app{json: test.json, stdout: &out, stderr: &out}
		err := a.tellFindings(test.all)
		if out.String() != test.want || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%v and\n%s, want %q and\n%s", err, out.String(), test.err, test.want)
		}
		if err != nil && a.fail(err) != exitOther {
			t.Error("the exit code is another")
		}
	}
}

func TestDoctorVersions(t *testing.T) {
	for name, test := range map[string]struct {
		gateway known
		want    []string
	}{
		"none":     {known{err: errAbsent}, []string{"fine ferrule: ferrule "}},
		"the same": {known{status: builtin.StatusOutput{Version: version()}}, []string{"fine ferrule: ", "fine gateway: the gateway that runs is of the same version"}},
		"another":  {known{status: builtin.StatusOutput{Version: "0.1"}}, []string{"fine ferrule: ", "note gateway: the gateway that runs is ferrule 0.1, and this is " + version() + " → start it again"}},
	} {
		wantTold(t, name, (&doctor{gateway: test.gateway}).versions(t.Context()), test.want...)
	}
}

func TestDoctorDirectory(t *testing.T) {
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
		"good":        {data, nil, owned(me, me), me, gb, []string{"fine directory: " + data + " can be written", "fine space: 1024 MB are free there"}},
		"no home":     {"", nil, nil, me, gb, []string{"wrong directory: there is no home directory to keep data in → --data or"}},
		"a file":      {file, nil, nil, me, gb, []string{"wrong directory: " + file + " is no directory → --data or"}},
		"in a file":   {filepath.Join(file, "x"), nil, nil, me, gb, []string{"wrong directory: " + file}},
		"not yet":     {filepath.Join(dir, "a/b"), nil, nil, me, gb, []string{"fine directory: " + filepath.Join(dir, "a/b") + " is not there yet", "fine space: "}},
		"never":       {filepath.Join(dir, "a/b"), os.ErrPermission, nil, me, gb, []string{"wrong directory: " + filepath.Join(dir, "a/b") + " is not there and cannot be made: " + dir + ": permission denied → "}},
		"read only":   {data, errors.New("read-only file system"), owned(me, me), me, gb, []string{"wrong directory: " + data + " cannot be written: read-only file system → --data"}},
		"root's":      {data, os.ErrPermission, owned(0, 0), me, gb, []string{"wrong directory: " + data + " cannot be written: permission denied", "wrong owner: of another user, in the data directory: " + data + ", lock → sudo chown -R $USER " + data}},
		"root's lock": {data, nil, owned(me, 0), me, gb, []string{"fine directory: ", "wrong owner: of another user, in the data directory: lock → sudo chown", "fine space: "}},
		"as root":     {data, nil, owned(me, me), 0, gb, []string{"fine directory: ", "note owner: you are root, and " + data + " belongs to user 1000", "fine space: "}},
		"nobody's":    {data, nil, func(os.FileInfo) (int, bool) { return 0, false }, -1, gb, []string{"fine directory: ", "fine space: "}},
		"little":      {data, nil, owned(me, me), me, 200 << 20, []string{"fine directory: ", "note space: 200 MB are free there → make room in time"}},
		"full":        {data, nil, owned(me, me), me, 1, []string{"fine directory: ", "wrong space: 0 MB are free there → make room: "}},
	} {
		d := &doctor{data: test.data, disk: disk{
			test.me, func(string) error { return test.deny }, test.owner, func(string) (uint64, error) { return test.free, nil },
		}}
		wantTold(t, name, d.directory(t.Context()), test.want...)
	}

	// One that others can write to.
	if err := os.Chmod(data, 0o777); err != nil {
		t.Fatal(err)
	}
	d := &doctor{data: data, disk: disk{
		me, func(string) error { return nil }, owned(me, me), func(string) (uint64, error) { return 0, errors.New("not told") },
	}}
	if info, err := os.Stat(data); err == nil && info.Mode().Perm() == 0o777 { // Windows has no such thing
		wantTold(t, "open", d.directory(t.Context()), "fine directory: ", "wrong owner: others can write to "+data+" → chmod 700 "+data)
	}
}

func TestDoctorJournal(t *testing.T) {
	d := &doctor{data: t.TempDir()}
	wantTold(t, "none", d.journal(t.Context()), "fine journal: there is no journal yet")
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
	wantTold(t, "whole", d.journal(t.Context()), "fine journal: the journal is whole: 3 records")
	path := filepath.Join(d.data, journal.FileName)
	data, _ := os.ReadFile(path)
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), "robot", "rabot", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantTold(t, "altered", d.journal(t.Context()), "wrong journal: the journal is not whole: record 1 or the one before it was altered → `ferrule audit verify` tells all")
	wantTold(t, "no data", (&doctor{}).journal(t.Context()))
}

func TestDoctorLog(t *testing.T) {
	d := &doctor{data: t.TempDir(), now: func() time.Time { return time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC) }}
	path := filepath.Join(d.data, logName)
	where := "`ferrule mcp` logs to " + path
	wantTold(t, "none", d.log(t.Context()), "fine log: "+where+", and has not yet")
	for name, test := range map[string]struct{ text, want string }{
		"no error":   {"time=2026-05-02T10:00:00Z level=INFO msg=x\n", "fine log: " + where},
		"an old one": {"time=2026-04-02T10:00:00Z level=ERROR msg=old\n", "fine log: " + where + "; its last error: time=2026-04-02T10:00:00Z level=ERROR msg=old"},
		"a new one": {
			"time=2026-05-02T09:00:00Z level=ERROR msg=first\ntime=2026-05-02T10:00:00Z level=ERROR msg=last\ntime=2026-05-02T11:00:00Z level=INFO msg=\" level=ERROR\"\n",
			"note log: " + where + "; its last error: time=2026-05-02T10:00:00Z level=ERROR msg=last → look",
		},
		"a long one": {strings.Repeat("x", 1<<20) + "\ntime=2026-05-02T10:00:00Z level=ERROR msg=last\n", "note log: " + where + "; its last error: time="},
		"rubbish":    {"\x00\xff level=ERROR \x1b", "fine log: " + where + "; its last error: "},
	} {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		wantTold(t, name, d.log(t.Context()), test.want)
	}
}

func TestDoctorLockAndSocket(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "left.sock")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		gateway known
		want    []string
	}{
		"not told": {known{socket: "s", err: errAbsent}, []string{"fine socket: the control socket will be s"}},
		"free":     {known{socket: left, locks: true, err: errAbsent}, []string{"fine lock: nobody has", "fine socket: the control socket is " + left + ", left behind"}},
		"pending":  {known{socket: left, locks: true, lock: program{7, "ferrule up"}}, []string{"fine lock: process 7 (ferrule up) has the data directory locked", "fine socket: the control socket is " + left}},
		"too long": {known{socketErr: errors.New("too long")}, []string{"wrong socket: there can be no control socket: too long → --data"}},
	} {
		d := &doctor{data: dir, gateway: test.gateway}
		wantTold(t, name, append(d.lock(t.Context()), d.socket(t.Context())...), test.want...)
	}
}

func TestDoctorConfig(t *testing.T) {
	dir := quietConfig(t)
	path := defaultConfig()
	overlays := filepath.Join(filepath.Dir(path), "overlays")
	if err := os.MkdirAll(overlays, 0o700); err != nil || !strings.HasPrefix(path, dir) {
		t.Fatal(path, err)
	}
	none := "fine overlays: there are no overlays in " + overlays
	d := &doctor{}
	wantTold(t, "none", d.config(t.Context()), "fine file: "+path+" is not there; the defaults are used", none)
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"good":     {"calls: {deadline: 5s}", []string{"fine file: " + path + " is read", none}},
		"wrong":    {"calls:\n  dedline: 5s\n", []string{"wrong file: " + path + ": [2:3] unknown field \"dedline\""}},
		"tokens":   {"auth: {tokens: [{name: a, token: 0123456789abcdef}]}", []string{"fine file: ", none, "fine tokens: tokens of agents: 1"}},
		"no token": {"auth: {tokens: [{name: a, file: a.token}]}", []string{"fine file: ", none, "wrong tokens: auth.tokens[0].file: open "}},
	} {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := d.config(t.Context())
		wantTold(t, name, got, test.want...)
		if strings.Contains(fmt.Sprint(got), "0123456789abcdef") {
			t.Error("a token is told")
		}
	}
	os.Remove(path)
	for name, test := range map[string]struct{ text, want string }{
		"good":  {"tools: {sweep: {effect: reads}}", "fine overlays: overlays in " + overlays + ": 1"},
		"wrong": {"tools: {sweep: {effect: dangerous}}", "wrong overlays: " + filepath.Join(overlays, "a.yaml") + ": tools.sweep.effect: must be reads"},
	} {
		if err := os.WriteFile(filepath.Join(overlays, "a.yaml"), []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		wantTold(t, name+" overlay", d.config(t.Context()), "fine file: ", test.want)
	}
	t.Setenv("FERRULE_CONFIG", "missing.yaml")
	wantTold(t, "missing", d.config(t.Context()), "wrong file: open missing.yaml")
}

func TestDoctorRunning(t *testing.T) {
	us := program{7, "ferrule up"}
	for name, test := range map[string]struct {
		gateway known
		want    []string
	}{
		"well":          {known{process: us, status: builtin.StatusOutput{Summary: "1 device is online."}}, []string{"fine running: process 7 (ferrule up) is running. 1 device is online."}},
		"nameless":      {known{}, []string{"fine running: a gateway is running. "}},
		"none":          {known{err: errAbsent}, []string{"note running: no gateway is running → `ferrule up` starts one"}},
		"no socket":     {known{err: errAbsent, lock: us}, []string{"wrong running: process 7 (ferrule up) has the data directory, and nobody answers at its socket → it may have just begun; try again; if it hangs, end it: kill 7"}},
		"mute":          {known{err: errMute, process: us}, []string{"wrong running: process 7 (ferrule up) cannot be asked: it does not answer within 900ms → try again; if it hangs, end it: kill 7"}},
		"another's":     {known{err: fmt.Errorf("dial: %w", os.ErrPermission)}, []string{"wrong running: a gateway cannot be asked: dial: permission denied → it is another user's"}},
		"limited":       {known{err: ferrule.Errorf(ferrule.Limited, "too many calls").WithHint("wait")}, []string{"note running: a gateway is running, and does not tell its status: too many calls → wait"}},
		"no path to it": {known{err: errMute, socketErr: errMute}, nil},
	} {
		wantTold(t, name, (&doctor{gateway: test.gateway}).running(t.Context()), test.want...)
	}
}

func TestDoctorNodes(t *testing.T) {
	of := func(n *builtin.Nodes) known { return known{status: builtin.StatusOutput{Nodes: n}} }
	for name, test := range map[string]struct {
		gateway known
		want    []string
	}{
		"none":  {known{err: errAbsent}, nil},
		"alone": {of(nil), nil},
		"among": {of(&builtin.Nodes{Node: "a", Tenant: "acme", Working: true, Others: []string{"b", "c"}}), []string{"fine nodes: one of the nodes of acme; the others that are there: b, c"}},
		"only":  {of(&builtin.Nodes{Node: "a", Tenant: "acme", Working: true}), []string{"note nodes: this is the only node of acme that is there"}},
		"cut":   {of(&builtin.Nodes{Node: "a", Tenant: "acme", Since: time.Now(), Reason: "no server"}), []string{"wrong nodes: since "}},
	} {
		wantTold(t, name, (&doctor{gateway: test.gateway}).nodes(t.Context()), test.want...)
	}
}

// TestDoctorHistory: that nothing is recorded is told of, with the reason.
func TestDoctorHistory(t *testing.T) {
	d := &doctor{gateway: known{status: builtin.StatusOutput{NotRecording: "there is no room"}}}
	wantTold(t, "stopped", d.history(t.Context()), "wrong history: what devices measure is not recorded: there is no room → devices are served all the same.")
	wantTold(t, "recording", (&doctor{}).history(t.Context()))
}

// TestDoctorEndpoints: an endpoint that is not connected is told of, with the reason.
func TestDoctorEndpoints(t *testing.T) {
	d := &doctor{gateway: known{status: builtin.StatusOutput{Endpoints: []string{"home is not connected to ws://h/mcp/ since 14:02:10: it is gone"}}}}
	wantTold(t, "away", d.endpoints(t.Context()), "wrong endpoints: home is not connected to ws://h/mcp/ since 14:02:10: it is gone")
	wantTold(t, "connected", (&doctor{}).endpoints(t.Context()))
}

func TestDoctorHTTP(t *testing.T) {
	quietConfig(t)
	answer := func(code int, body string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprint(w, body)
		}))
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	nobody, err := freeAddr()
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	well, full := answer(200, `{"status":"ok","journal":"ok"}`), answer(503, `{"status":"failing","journal":"no space left"}`)
	other := answer(200, "<html>")
	for name, test := range map[string]struct {
		gateway known
		listen  string
		want    []string
	}{
		"served":           {known{status: builtin.StatusOutput{Listen: well}}, "", []string{"fine http: http://" + well + "/healthz answers"}},
		"ill":              {known{status: builtin.StatusOutput{Listen: full}}, "", []string{"wrong http: the gateway is failing: no space left → nothing may be changed"}},
		"not served":       {known{status: builtin.StatusOutput{Listen: nobody}}, "", []string{"wrong http: http://" + nobody + "/healthz does not answer: "}},
		"served by others": {known{status: builtin.StatusOutput{Listen: other}}, "", []string{"wrong http: http://" + other + "/healthz does not answer: "}},
		"no HTTP":          {known{}, "", []string{"fine http: the gateway serves no HTTP"}},
		"mute":             {known{err: errMute}, well, nil},
		"just beginning":   {known{err: errAbsent, lock: program{pid: 7}}, well, nil},
		"free":             {known{err: errAbsent}, nobody, []string{"fine http: nobody listens at " + nobody}},
		"any port":         {known{err: errAbsent}, "127.0.0.1:0", []string{"fine http: a gateway here would take any port"}},
		"another gateway":  {known{err: errAbsent}, well, []string{"wrong http: the gateway of another data directory listens at " + well}},
		"another program":  {known{err: errAbsent}, other, []string{"wrong http: another program listens at " + other + ": `ferrule up` would not start → end it, or"}},
		"a silent program": {known{err: errAbsent}, silent.Addr().String(), []string{"wrong http: another program listens at "}},
	} {
		t.Setenv("FERRULE_LISTEN", test.listen)
		d := &doctor{root: t.TempDir(), gateway: test.gateway}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		wantTold(t, name, d.http(ctx), test.want...)
		cancel()
	}
	for addr, want := range map[string]string{"0.0.0.0:3377": "localhost:3377", ":3377": "localhost:3377", "[::]:1": "localhost:1", "127.0.0.1:3377": "127.0.0.1:3377", "x": "x"} {
		if got := reachable(addr); got != want {
			t.Errorf("%s is reached at %s, want %s", addr, got, want)
		}
	}
}

func TestDoctorPorts(t *testing.T) {
	quietConfig(t)
	uno := serial.PortStatus{Path: "/dev/ttyACM0", USB: true, VID: "2341", PID: "0043", Product: "Arduino Uno", Maker: "Arduino"}
	clone := serial.PortStatus{Path: "/dev/ttyUSB0", USB: true, VID: "1A86", PID: "7523", Product: "USB Serial", Bridge: "WCH CH340"}
	pi := serial.PortStatus{Path: "/dev/ttyAMA0"}
	with := func(p serial.PortStatus, change func(p *serial.PortStatus)) []serial.PortStatus {
		change(&p)
		return []serial.PortStatus{p}
	}
	denied := func(why serial.Denied, group string) func(p *serial.PortStatus) {
		return func(p *serial.PortStatus) { p.Denied, p.Group = why, group }
	}
	held := func(pid int) func(p *serial.PortStatus) {
		return func(p *serial.PortStatus) { p.Holder = serial.Process{ID: pid, Name: "minicom"} }
	}
	const isUno, isClone = `/dev/ttyACM0 ("Arduino Uno"), a board of Arduino: `, `/dev/ttyUSB0 ("USB Serial"), behind a bridge (WCH CH340): `
	for name, test := range map[string]struct {
		named string
		ports []serial.PortStatus
		err   error
		want  []string
	}{
		"none":     {"", nil, nil, []string{"note port: there is no serial port that a board could be on → "}},
		"not told": {"", nil, errors.New("no /dev"), []string{"note port: the system does not tell of all serial ports: no /dev"}},
		"free": {"", []serial.PortStatus{uno, clone, pi}, nil, []string{
			"fine port: " + isUno + "it can be opened", "fine port: " + isClone + "it can be opened; `auto` only lists it", "fine port: /dev/ttyAMA0: it can be opened, if it is named",
		}},
		"named":              {"/dev/ttyUSB0", []serial.PortStatus{clone}, nil, []string{"fine port: " + isClone + "it can be opened"}},
		"absent":             {"/dev/ttyUSB7", []serial.PortStatus{{Path: "/dev/ttyUSB7", Absent: "there is no port /dev/ttyUSB7"}}, nil, []string{"wrong port: there is no port /dev/ttyUSB7 → it is asked for by name"}},
		"a stranger":         {"", with(clone, denied(serial.NotMember, "dialout")), nil, []string{"wrong port: " + isClone + "you may not open it, and group dialout may → sudo usermod -aG dialout $USER, and log in again"}},
		"too early":          {"", with(uno, denied(serial.NeedsLogin, "uucp")), nil, []string{"wrong port: " + isUno + "you are in group uucp, and logged in before that was so → log out and in again"}},
		"nobody":             {"", with(uno, denied(serial.NoGroup, "")), nil, []string{"wrong port: " + isUno + "you may not open it, and no group may → a rule for udev helps"}},
		"the console":        {"", with(pi, denied(serial.NoGroup, "")), nil, []string{"note port: /dev/ttyAMA0: you may not open it"}},
		"the console, named": {"/dev/ttyAMA0", with(pi, denied(serial.NotMember, "dialout")), nil, []string{"wrong port: /dev/ttyAMA0: you may not open it"}},
		"ours":               {"", with(uno, held(7)), nil, []string{"fine port: " + isUno + "the gateway has it"}},
		"another's":          {"", with(uno, held(8)), nil, []string{"wrong port: " + isUno + "it is in use by minicom (process 8) → close that"}},
		"a printer":          {"", with(clone, held(8)), nil, []string{"note port: " + isClone + "it is in use by minicom (process 8)"}},
		"unknown id":         {"", with(clone, func(p *serial.PortStatus) { p.VID, p.Bridge = "1234", "" }), nil, []string{`fine port: /dev/ttyUSB0 ("USB Serial"), USB id 1234:7523: it can`}},
	} {
		t.Setenv("SERIAL_PORT", test.named)
		d := &doctor{gateway: known{process: program{pid: 7}}, survey: func(_ context.Context, named ...string) ([]serial.PortStatus, error) {
			if strings.Join(named, " ") != test.named {
				t.Errorf("%s: surveyed for %q", name, named)
			}
			return test.ports, test.err
		}}
		wantTold(t, name, d.ports(t.Context()), test.want...)
	}
}

// machineOf is a directory with files, in the place of a machine.
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

func TestDoctorGrabbers(t *testing.T) {
	for name, test := range map[string]struct {
		system string
		files  map[string]string
		want   []string
	}{
		"nothing is told": {"linux", nil, []string{"fine udev: no rule of ours"}},
		"another system":  {"darwin", map[string]string{"proc/1/comm": "brltty\n"}, nil},
		"nobody":          {"linux", map[string]string{"proc/1/comm": "init\n", "proc/self/comm": "brltty\n"}, []string{"fine udev: no rule of ours"}},
		"both": {"linux", map[string]string{"proc/12/comm": "ModemManager\n", "proc/13/comm": "brltty\n"}, []string{
			"note modemmanager: ModemManager is running: ", "note brltty: brltty is running: ", "fine udev: no rule of ours",
		}},
		"a rule": {"linux", map[string]string{"proc/12/comm": "ModemManager\n", "etc/udev/rules.d/60-ferrule.rules": ""}, []string{
			"fine modemmanager: ModemManager is running, and a rule of ours", "fine udev: a rule of ours for udev is there: ",
		}},
	} {
		d := &doctor{system: test.system, root: machineOf(t, test.files)}
		wantTold(t, name, append(d.grabbers(t.Context()), d.udev(t.Context())...), test.want...)
	}
}

func TestDoctorBoards(t *testing.T) {
	online := builtin.DescribedDevice{ID: "robot", State: "online", Trust: "adopted", Kind: "x", Tools: 12}
	with := func(change func(d *builtin.DescribedDevice)) builtin.DescribedDevice {
		d := online
		change(&d)
		return d
	}
	offline := func(reason string) builtin.DescribedDevice {
		return with(func(d *builtin.DescribedDevice) { d.State, d.Reason = "offline", reason })
	}
	many := make([]builtin.DescribedDevice, 60)
	for i := range many {
		many[i] = online
	}
	many[59] = offline("it hangs")
	for name, test := range map[string]struct {
		gateway known
		list    builtin.ListDevicesOutput
		err     error
		want    []string
	}{
		"no gateway": {known{err: errAbsent}, builtin.ListDevicesOutput{}, nil, nil},
		"mute":       {known{}, builtin.ListDevicesOutput{}, errors.New("busy"), []string{"note board: the gateway does not tell of its boards: busy"}},
		"none":       {known{}, builtin.ListDevicesOutput{}, nil, []string{"note board: the gateway has seen no board → `ferrule up"}},
		"some, worst first": {known{}, builtin.ListDevicesOutput{Devices: []builtin.DescribedDevice{
			online,
			offline("opening /dev/ttyACM0: permission denied"),
			offline("no longer in reach"),
			with(func(d *builtin.DescribedDevice) { d.Trust = "pending" }),
			with(func(d *builtin.DescribedDevice) {
				d.State, d.Reason = "released", "is released for other programs until noon"
			}),
			with(func(d *builtin.DescribedDevice) { d.Unusable = 3 }),
		}}, nil, []string{
			"wrong board: robot is offline, since ",
			"note board: robot is offline since ",
			"note board: robot was found, and waits → `ferrule adopt robot`, if it is yours",
			"note board: robot is released for other programs until noon → it is taken back by itself",
			"note tools: tools of robot that cannot be used: 3 → `ferrule tools robot` tells why",
			"fine board: robot is online, with 12 tools",
			"fine board: robot is online, with 12 tools",
		}},
	} {
		d := &doctor{gateway: test.gateway, devices: func(context.Context) (builtin.ListDevicesOutput, error) { return test.list, test.err }}
		wantTold(t, name, d.boards(t.Context()), test.want...)
	}
	d := &doctor{devices: func(context.Context) (builtin.ListDevicesOutput, error) {
		return builtin.ListDevicesOutput{Devices: many, Total: 1_000_000}, nil
	}}
	all := d.boards(t.Context())
	if len(all) != 51 || all[0].State != wrong || all[50].Found != "and 999950 more" {
		t.Errorf("got %d findings, %+v and %+v", len(all), all[0], all[len(all)-1])
	}
}

func TestDoctorEnvironment(t *testing.T) {
	for name, test := range map[string]struct {
		environ, want []string
	}{
		"nothing": {[]string{"PATH=/bin", "FERRULE_DATA="}, []string{"fine variable: no variable has an effect"}},
		"some":    {[]string{"FERRULE_DATA=/d", "DEVICES=a:/dev/x"}, []string{"fine variable: DEVICES=a:/dev/x", "fine variable: FERRULE_DATA=/d"}},
		"a typo":  {[]string{"FERRULE_DIR=/d"}, []string{"note variable: FERRULE_DIR=/d: nothing reads it → there are FERRULE_CONFIG, FERRULE_DATA, FERRULE_LISTEN"}},
		"secret":  {[]string{"FERRULE_TOKEN=hush"}, []string{"note variable: FERRULE_TOKEN=(not shown): nothing reads it"}},
		"idle":    {[]string{"SERIAL_BAUD=9600"}, []string{"note variable: SERIAL_BAUD=9600: it has no effect without SERIAL_PORT → "}},
		"both":    {[]string{"SERIAL_PORT=COM3", "DEVICES=a:COM3"}, []string{"note variable: DEVICES=a:COM3: it has no effect beside SERIAL_PORT → ", "fine variable: SERIAL_PORT=COM3"}},
		"wrong":   {[]string{"SERIAL_PORT=COM3", "SERIAL_BAUD=fast"}, []string{"fine variable: SERIAL_BAUD=fast", "fine variable: SERIAL_PORT=COM3", "wrong devices: SERIAL_BAUD: want a bit rate such as 115200, got \"fast\" → no gateway starts"}},
		"odd":     {[]string{"", "=C:=x", "FERRULE_"}, []string{"fine variable: no variable has an effect"}},
	} {
		quietConfig(t)
		for _, text := range test.environ {
			if name, value, _ := strings.Cut(text, "="); slices.Contains(variables, name) {
				t.Setenv(name, value)
			}
		}
		got := (&doctor{environ: test.environ}).environment(t.Context())
		wantTold(t, name, got, test.want...)
		if strings.Contains(fmt.Sprint(got), "hush") {
			t.Error("a secret is told")
		}
	}
}

// TestDoctorKnowsTheSource: the variables and the reasons that the doctor knows are
// those that there are.
func TestDoctorKnowsTheSource(t *testing.T) {
	texts := sourceTexts(t)
	for _, name := range regexp.MustCompile(`\bFERRULE_[A-Z]+\b`).FindAllString(texts, -1) {
		if !slices.Contains(variables, name) {
			t.Errorf("%s is read, and the doctor does not know it", name)
		}
	}
	for _, reason := range away {
		if strings.Count(texts, reason+"\n") < 2 {
			t.Errorf("no device is offline because %q", reason)
		}
	}
}

// TestDoctorChangesNothing: neither where there is nothing, nor where the socket
// would be in a directory of its own.
func TestDoctorChangesNothing(t *testing.T) {
	c := newCommandLine(t)
	temp, err := os.MkdirTemp("", "f")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temp)
	t.Setenv("TMPDIR", temp)
	t.Setenv("FERRULE_DATA", filepath.Join(t.TempDir(), strings.Repeat("x", 120)))
	_, text := c.run("doctor", "--json")
	var out struct{ Findings []finding }
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&out); err != nil || len(out.Findings) < 10 {
		t.Errorf("%v: %s", err, text)
	}
	if _, err := os.Stat(os.Getenv("FERRULE_DATA")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data directory was made: %v", err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDoctorOfMute: a gateway that takes what it is told and never answers is told
// of in time.
func TestDoctorOfMute(t *testing.T) {
	c := newCommandLine(t)
	data := os.Getenv("FERRULE_DATA")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	socket, err := control.SocketPath(data)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	start := time.Now()
	c.want(exitOther, " cannot be asked: it does not answer within 900ms\n", "doctor")
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}
