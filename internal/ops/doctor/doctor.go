// Package doctor finds out what is wrong on a machine: with the data directory, the
// configuration, the gateway, serial ports, the hardware of a Linux board, MQTT brokers, Home Assistants, devices, agent programs and the
// environment.
//
//	Examine -> ask the gateway for its status (0.9 s)
//	        -> all checks at the same time (3.6 s)
//	        -> findings: fine, note or wrong, each with the next step
//
// The doctor works without a gateway. It changes nothing and opens no serial port,
// because that resets many boards. It publishes one message to each broker, to a topic
// that nobody uses. It starts the commands of agent programs, which know
// by a variable that they must not open one either. A check that hangs is left behind; a check that
// panics becomes a finding.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/device/transport/serial"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/setup"
	"github.com/ferrulehq/ferrule/internal/permission"
)

// Finding is the result of one check. Its JSON keys are stable.
type Finding struct {
	Area  string `json:"area"`
	Check string `json:"check"`           // name within the area
	About string `json:"about,omitempty"` // file, port or device
	State Health `json:"state"`
	Found string `json:"found"`
	Next  string `json:"next,omitempty"` // what to do
}

// Health is the verdict of a check.
type Health string

const (
	Fine  Health = "fine"
	Note  Health = "note"
	Wrong Health = "wrong"
)

// Parts is what a doctor is built from.
type Parts struct {
	Data string // data directory; "" if the user has none
	File string // configuration file, if one is named
	// Service is set if the user names no data directory: then the packaged service is
	// examined if it runs and the user's own gateway does not.
	Service bool
	Version string
	// FreeSpace returns the free bytes of the disk that a directory is on.
	FreeSpace func(dir string) (uint64, error)
}

// Doctor examines a machine. Its fields are where it looks; tests replace them.
type Doctor struct {
	version string
	data    string
	file    string
	service bool
	root    string // of /proc and /etc
	system  string // as runtime.GOOS
	environ []string
	now     func() time.Time
	disk    disk
	ask     func(ctx context.Context) gatewayState
	list    func(ctx context.Context) (builtin.ListDevicesOutput, error)
	access  func(file string) (permission.Denied, string) // why a file may not be written, and the group that may
	survey  func(ctx context.Context, named ...string) ([]serial.PortStatus, error)
	place   func() (setup.Place, error) // where agent programs keep their configurations

	gateway gatewayState // the answer of ask

	patience time.Duration // replaces probeTime unless it is 0
}

// New returns a doctor for this machine.
func New(p Parts) *Doctor {
	d := &Doctor{
		version: p.Version, data: p.Data, file: p.File, service: p.Service, root: "/", system: runtime.GOOS, environ: os.Environ(), now: time.Now,
		disk: disk{me: os.Getuid(), writable: writable, owner: owner, free: p.FreeSpace}, access: permission.ToWrite, survey: serial.Inspect, place: setup.Here,
	}
	if path, err := filepath.Abs(d.data); err == nil && d.data != "" {
		d.data = path
	}
	d.ask, d.list = d.askGateway, d.listDevices
	return d
}

// The gateway may take askTime to answer, then all checks together checkTime. Checks
// that ignore the end of their context are left behind after another lateTime.
const (
	askTime   = 900 * time.Millisecond
	checkTime = 3600 * time.Millisecond
	lateTime  = 200 * time.Millisecond
)

// Summary returns the problems among findings, the worst first, and the rest as one line:
// how many findings of each area are fine.
func Summary(all []Finding) (problems []Finding, fine string) {
	var areas []string
	count := make(map[string]int)
	for _, f := range all {
		if f.State != Fine {
			problems = append(problems, f)
			continue
		}
		if count[f.Area]++; count[f.Area] == 1 {
			areas = append(areas, f.Area)
		}
	}
	slices.SortStableFunc(problems, func(a, b Finding) int { return cmp.Compare(rank[a.State], rank[b.State]) })
	for i, area := range areas {
		areas[i] = fmt.Sprintf("%s %d", area, count[area])
	}
	return problems, strings.Join(areas, ", ")
}

// rank orders findings: the worst come first.
var rank = map[Health]int{Wrong: 0, Note: 1, Fine: 2}

// check examines one thing, or several of the same sort.
type check struct {
	area, name string
	run        func(ctx context.Context) []Finding
}

// Examine runs all checks at the same time, for at most five seconds.
func (d *Doctor) Examine(ctx context.Context) []Finding {
	d.gateway = d.askInTime(ctx)
	return runChecks(ctx, checkTime, []check{
		{"versions", "versions", d.versions},
		{"data", "directory", d.directory},
		{"data", "journal", d.journal},
		{"data", "log", d.log},
		{"data", "lock", d.lock},
		{"data", "socket", d.socket},
		{"config", "file", d.config},
		{"gateway", "running", d.running},
		{"gateway", "nodes", d.nodes},
		{"gateway", "endpoints", d.endpoints},
		{"gateway", "brokers", d.brokers},
		{"gateway", "homes", d.homes},
		{"gateway", "hooks", d.hooks},
		{"gateway", "history", d.history},
		{"gateway", "http", d.http},
		{"ports", "port", d.ports},
		{"ports", "grabbers", d.grabbers},
		{"ports", "udev", d.udev},
		{"hardware", "hardware", d.hardware},
		{"brokers", "broker", d.mqtt},
		{"homes", "home", d.homeAssistants},
		{"boards", "board", d.devices},
		{"agents", "client", d.clients},
		{"environment", "variable", d.environment},
	})
}

func (d *Doctor) askInTime(ctx context.Context) gatewayState {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answer := make(chan gatewayState, 1)
	go func() { answer <- d.ask(ctx) }()
	select {
	case s := <-answer:
		return s
	case <-time.After(askTime + lateTime):
		return gatewayState{err: errNoAnswer}
	}
}

// runChecks runs checks at the same time.
func runChecks(ctx context.Context, length time.Duration, checks []check) []Finding {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	results := make([]chan []Finding, len(checks))
	for i, c := range checks {
		results[i] = make(chan []Finding, 1)
		go func() { results[i] <- c.safely(ctx) }()
	}
	late, stop := context.WithTimeout(context.WithoutCancel(ctx), length+lateTime)
	defer stop()
	all := []Finding{}
	for i, c := range checks {
		for _, f := range c.await(late, results[i]) {
			f.Area = c.area
			f.About, f.Next = ferrule.MaskURLs(f.About), ferrule.MaskURLs(f.Next)
			f.Found = ferrule.Clean(ferrule.MaskURLs(f.Found), ferrule.MaxText)
			all = append(all, f)
		}
	}
	return all
}

// await returns the findings of a check, or that it took too long.
func (c check) await(late context.Context, result <-chan []Finding) []Finding {
	select {
	case found := <-result:
		return found
	case <-late.Done():
	}
	select {
	case found := <-result: // it ended while another was awaited
		return found
	default:
		return []Finding{{Check: c.name, State: Note, Found: "this check took too long", Next: "try again; a disk or a service may hang"}}
	}
}

// safely runs a check. A panic must not hide the findings of other checks.
func (c check) safely(ctx context.Context) (found []Finding) {
	defer func() {
		if p := recover(); p != nil {
			found = []Finding{{Check: c.name, State: Note, Found: fmt.Sprintf("this check failed: %v", p), Next: "please report it, and name your operating system"}}
		}
	}()
	return c.run(ctx)
}
