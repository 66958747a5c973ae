package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/doctor"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// TestDoctorOutput checks the output of findings, the keys of their JSON and the exit code.
func TestDoctorOutput(t *testing.T) {
	well := doctor.Finding{Area: "data", Check: "log", State: doctor.Fine, Found: "good"}
	ill := doctor.Finding{Area: "ports", Check: "port", About: "/dev/x", State: doctor.Wrong, Found: "one\ntwo", Next: "mend it"}
	for _, test := range []struct {
		json, listAll bool
		all           []doctor.Finding
		err           string
		want          string
	}{
		{false, true, []doctor.Finding{well, {Area: "data", Check: "space", State: doctor.Note, Found: "little"}}, "", "data\n  fine   good\n  note   little\n\nNothing is wrong.\n"},
		{false, true, []doctor.Finding{well, ill}, "1 thing is wrong", "data\n  fine   good\nports\n  wrong  one\n         two\n         → mend it\n"},
		{false, false, []doctor.Finding{well, well, {Area: "data", Check: "space", State: doctor.Note, Found: "little"}, ill}, "1 thing is wrong", "  wrong  one\n         two\n         → mend it\n  note   little\n  fine   data 2\n"},
		{false, false, []doctor.Finding{well}, "", "  fine   data 1\n\nNothing is wrong.\n"},
		{true, false, []doctor.Finding{}, "", `{"version":"` + version() + `","wrong":0,"notes":0,"findings":[]}` + "\n"},
		{true, false, []doctor.Finding{well, ill, ill}, "2 things are wrong", `{"version":"` + version() + `","wrong":2,"notes":0,"findings":[` +
			`{"area":"data","check":"log","state":"fine","found":"good"},` +
			`{"area":"ports","check":"port","about":"/dev/x","state":"wrong","found":"one\ntwo","next":"mend it"},` +
			`{"area":"ports","check":"port","about":"/dev/x","state":"wrong","found":"one\ntwo","next":"mend it"}]}` + "\n"},
	} {
		var out strings.Builder
		a := &app{json: test.json, stdout: &out, stderr: &out}
		err := a.printFindings(test.all, test.listAll)
		if out.String() != test.want || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%v and\n%s, want %q and\n%s", err, out.String(), test.err, test.want)
		}
		if err != nil && a.fail("ferrule doctor", err) != exitOther {
			t.Error("wrong exit code")
		}
	}
}

// TestDoctorChangesNothing checks that no files are created, even if the socket would be in
// a directory of its own.
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
	var out struct{ Findings []doctor.Finding }
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&out); err != nil || len(out.Findings) < 10 {
		t.Errorf("%v: %s", err, text)
	}
	if _, err := os.Stat(os.Getenv("FERRULE_DATA")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data directory was created: %v", err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDoctorHangingGateway checks that a gateway that never answers is reported.
func TestDoctorHangingGateway(t *testing.T) {
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
	c.want(exitOther, " cannot be reached: no answer within 900ms\n", "doctor")
	figure.AtMost(t, "the doctor beside a gateway that never answers", time.Since(start), 3*time.Second)
}
