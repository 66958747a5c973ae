package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/device/transport/serial"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/ops/setup"
)

func (a *app) doctorCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is wrong on this machine",
		Long: `Find what is wrong on this machine: with the data directory, the config, the
gateway, serial ports and who may open them, boards, agents, and the environment. Each
finding is fine, a note, or wrong, and says what to do.

It works without a gateway, takes at most three seconds, and changes nothing; that it
asked a gateway is in its journal. No serial port is opened: that would restart boards.

The exit code is 0 if nothing is wrong, and 1 otherwise.`,
		Example: "  ferrule doctor\n  ferrule doctor --json",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.tellFindings(a.newDoctor(file).examine(cmd.Context()))
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "`FILE` that is meant instead of "+configName()+" (FERRULE_CONFIG)")
	return cmd
}

// finding is one thing that the doctor looked at. Its keys are kept.
type finding struct {
	Area  string `json:"area"`
	Check string `json:"check"`           // which one of the area
	About string `json:"about,omitempty"` // the file, port or device
	State health `json:"state"`
	Found string `json:"found"`
	Next  string `json:"next,omitempty"` // what to do
}

// health is how a thing is.
type health string

const (
	fine  health = "fine"
	note  health = "note"
	wrong health = "wrong"
)

// doctor is where is looked. Tests look elsewhere.
type doctor struct {
	data    string // the data directory; empty if none is meant
	file    string // the config that is named, if one is
	root    string // where /proc and /etc are
	system  string // as runtime.GOOS
	environ []string
	now     func() time.Time
	disk    disk
	ask     func(ctx context.Context) known
	devices func(ctx context.Context) (builtin.ListDevicesOutput, error)
	survey  func(ctx context.Context, named ...string) ([]serial.PortStatus, error)
	place   func() (setup.Place, error) // where the configs of agents are

	gateway known // what ask has told
}

func (a *app) newDoctor(file string) *doctor {
	d := &doctor{
		data: a.dataDir(), file: file, root: "/", system: runtime.GOOS, environ: os.Environ(), now: time.Now,
		disk: disk{me: os.Getuid(), writable: writable, owner: owner, free: history.FreeSpace}, survey: serial.Inspect, place: setup.Here,
	}
	if path, err := filepath.Abs(d.data); err == nil && d.data != "" {
		d.data = path
	}
	d.ask, d.devices = d.askGateway, d.listDevices
	return d
}

// How long the gateway may take to answer, and then everything else together. A
// moment later, what has not noticed that time is up is left behind.
const (
	askTime  = 900 * time.Millisecond
	lookTime = 1600 * time.Millisecond
	moment   = 200 * time.Millisecond
)

// checkup looks at one thing, or several of a sort.
type checkup struct {
	area, name string
	look       func(ctx context.Context) []finding
}

// examine makes all checks, side by side.
func (d *doctor) examine(ctx context.Context) []finding {
	d.gateway = d.askInTime(ctx)
	return examine(ctx, lookTime, []checkup{
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
		{"gateway", "history", d.history},
		{"gateway", "http", d.http},
		{"ports", "port", d.ports},
		{"ports", "grabbers", d.grabbers},
		{"ports", "udev", d.udev},
		{"boards", "board", d.boards},
		{"agents", "client", d.clients},
		{"environment", "variable", d.environment},
	})
}

// askInTime asks the gateway, and waits no longer than it may take.
func (d *doctor) askInTime(ctx context.Context) known {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	told := make(chan known, 1)
	go func() { told <- d.ask(ctx) }()
	select {
	case k := <-told:
		return k
	case <-time.After(askTime + moment):
		return known{err: errMute}
	}
}

// examine makes checks at once. One that does not end in time is left behind.
func examine(ctx context.Context, length time.Duration, checks []checkup) []finding {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	results := make([]chan []finding, len(checks))
	for i, c := range checks {
		results[i] = make(chan []finding, 1)
		go func() { results[i] <- c.safely(ctx) }()
	}
	late, stop := context.WithTimeout(context.WithoutCancel(ctx), length+moment)
	defer stop()
	all := []finding{}
	for i, c := range checks {
		for _, f := range c.await(late, results[i]) {
			f.Area = c.area
			f.Found = ferrule.Clean(f.Found, ferrule.MaxText)
			all = append(all, f)
		}
	}
	return all
}

// await returns what a check has found, or that it does not end.
func (c checkup) await(late context.Context, result <-chan []finding) []finding {
	select {
	case found := <-result:
		return found
	case <-late.Done():
	}
	select {
	case found := <-result: // of one that ended while another was waited for
		return found
	default:
		return []finding{{Check: c.name, State: note, Found: "it took too long to look", Next: "try again; a disk or a service may hang"}}
	}
}

// safely makes a check. What it did not expect of a system is no reason to hide
// the other findings.
func (c checkup) safely(ctx context.Context) (found []finding) {
	defer func() {
		if p := recover(); p != nil {
			found = []finding{{Check: c.name, State: note, Found: fmt.Sprintf("looking here failed: %v", p), Next: "please report it, with your system"}}
		}
	}()
	return c.look(ctx)
}

// tellFindings writes findings. That something is wrong is an error.
func (a *app) tellFindings(all []finding) error {
	count := make(map[health]int)
	for _, f := range all {
		count[f.State]++
	}
	var err error
	if n := count[wrong]; n == 1 {
		err = errors.New("1 thing is wrong")
	} else if n > 1 {
		err = fmt.Errorf("%d things are wrong", n)
	}
	if a.json {
		return errors.Join(a.printJSON(struct {
			Version  string    `json:"version"`
			Wrong    int       `json:"wrong"`
			Notes    int       `json:"notes"`
			Findings []finding `json:"findings"`
		}{version(), count[wrong], count[note], all}), err)
	}
	area := ""
	for _, f := range all {
		if f.Area != area {
			area = f.Area
			fmt.Fprintln(a.stdout, a.style(bold, area))
		}
		a.printFinding(f)
	}
	if err == nil {
		fmt.Fprintln(a.stdout, "\nNothing is wrong.")
	}
	return err
}

// printFinding writes a finding, its further lines under the first.
func (a *app) printFinding(f finding) {
	styles := map[health]string{fine: green, note: bold, wrong: red}
	state := a.style(styles[f.State], fmt.Sprintf("%-5s", f.State))
	fmt.Fprintf(a.stdout, "  %s  %s\n", state, strings.ReplaceAll(f.Found, "\n", "\n         "))
	if f.Next != "" {
		fmt.Fprintf(a.stdout, "         %s\n", a.style(faint, "→ "+f.Next))
	}
}
