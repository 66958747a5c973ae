//go:build linux

// Package linux makes a device of a Linux computer, for example of a Raspberry Pi. It describes
// what the kernel offers, and there is nothing to declare:
//
//	board := linux.New("workshop-pi", "1.0.0", linux.Config{})
//	defer board.Close()
//	device := mcpserver.New(board.Device, mcpserver.Config{Listen: "127.0.0.1:8642"})
//	go board.Run(ctx, device.Refresh)
//	err := device.Run(ctx)
//
// Every part that is found has tools, whose names begin with the name of the part:
//
//	GPIO chips       CHIP_lines (polled), CHIP_read, CHIP_write, CHIP_pulse
//	PWM chips        CHIP (polled), CHIP_set, CHIP_stop
//	IIO sensors      SENSOR (polled)
//	hwmon chips      CHIP (polled)
//	thermal zones    ZONE (polled)
//	LEDs             led_NAME (polled), led_NAME_set
//	backlights       backlight_NAME (polled), backlight_NAME_set
//	cameras          camera_NAME takes a picture
//
// The gateway records every number of a polled tool. Names of members end with their unit, such
// as temp1_celsius.
//
// # What is left alone
//
// Looking for parts changes nothing: no line is reserved and no output is set. Left out are
// GPIO lines without a name, lines that a driver uses, and lines whose pins the device tree
// gives to a bus or another peripheral, because reserving those can cut off an SD card.
//
// A line is reserved by the first call that uses it, and stays reserved until [Board.Close]. A
// read reserves it as it is: it does not change the direction.
//
// # Parts that come and go
//
// [Board.Run] notices parts that appear or vanish, adds and removes their tools, and calls a
// function if there is a change.
//
// A tool returns a [thing.RefusedError] only if it did nothing. If a part is unplugged while a
// tool sets it, the error says what was done before.
package linux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/thing"
)

// Config configures a board. A field that is not set has the default that its comment names.
type Config struct {
	// Lines are the GPIO lines to offer, as patterns of [path.Match] for their names, such as
	// GPIO1*. Lines that are named here are reserved when Run begins, and recorded from then on.
	// Default: all lines, and each is reserved when it is first used.
	Lines []string
	// Poll is the interval at which the gateway records sensors and levels. Default: 10 seconds.
	Poll time.Duration
	// Log receives what appears, what vanishes, and what may not be opened. Default: none.
	Log *slog.Logger
}

// Check returns an error if the configuration is invalid.
func (c Config) Check() error {
	for _, pattern := range c.Lines {
		if _, err := filepath.Match(pattern, ""); err != nil {
			return fmt.Errorf("invalid pattern of GPIO lines %q", pattern)
		}
	}
	if c.Poll < 0 || c.Poll != 0 && c.Poll < time.Second {
		return fmt.Errorf("the interval of polling must be at least 1s, got %v", c.Poll)
	}
	return nil
}

// Board is a Linux computer as a device. Its tools are those of the parts that were found last.
type Board struct {
	*thing.Device
	config  Config
	finders []finder
	chips   gpioChips
	probe   func(file string) (format uint32, err error) // of a camera

	mu      sync.Mutex
	scanned bool
	parts   map[string]*part // by key
	denied  map[string]bool  // files that were logged
	ignored map[string]bool  // keys of what has nothing to offer
}

// part is something of the computer that has tools.
type part struct {
	dir  string // in sysfs
	key  string // differs for each time that it is plugged in
	name string // the prefix of its tools: wished by the finder, then made unique
	what string // for the log
	// actions are what the names of the tools end with.
	actions []string
	// declare adds the tools.
	declare func(t *partTools)
	// begin is called once when the board runs, and close when the part is gone. Both may be nil.
	begin, close func()
	tools        []string
}

// finder finds the parts of one sort: the entries of a directory in sysfs with certain names.
type finder struct {
	dir  string
	name *regexp.Regexp
	// find returns the part of an entry, or nil if it has nothing to offer. After an error it
	// is tried again. It is called with mu held.
	find func(dir string) (*part, error)
}

// New returns a board with the parts that are present. It reserves nothing. New panics if the
// configuration is invalid.
func New(name, version string, config Config) *Board {
	if err := config.Check(); err != nil {
		panic("linux: " + err.Error())
	}
	b := newBoard(thing.New(name, version), config)
	b.Scan()
	return b
}

// newBoard returns a board without parts.
func newBoard(d *thing.Device, config Config) *Board {
	config.Poll = cmp.Or(config.Poll, 10*time.Second)
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	b := &Board{
		Device: d, config: config, chips: realChips{}, probe: probeCamera,
		parts: make(map[string]*part), denied: make(map[string]bool),
	}
	b.Platform = "linux"
	b.finders = []finder{
		{"sys/bus/gpio/devices", regexp.MustCompile(`^gpiochip[0-9]+$`), b.findGPIO},
		{"sys/class/pwm", regexp.MustCompile(`^pwmchip[0-9]+$`), b.findPWM},
		{"sys/bus/iio/devices", regexp.MustCompile(`^iio:device[0-9]+$`), b.findIIO},
		{"sys/class/hwmon", regexp.MustCompile(`^hwmon[0-9]+$`), b.findHwmon},
		{"sys/class/thermal", regexp.MustCompile(`^thermal_zone[0-9]+$`), b.findThermal},
		{"sys/class/leds", regexp.MustCompile(`.`), b.findLED},
		{"sys/class/backlight", regexp.MustCompile(`.`), b.findBacklight},
		{"sys/class/video4linux", regexp.MustCompile(`^video[0-9]+$`), b.findCamera},
	}
	return b
}

// scanInterval is how often Run looks for parts. The kernel's events need no permission either,
// but a service in a network namespace does not get them.
const scanInterval = time.Second

// Run looks for parts that appear or vanish until ctx ends; it then returns nil. It calls changed
// after the tools have changed.
func (b *Board) Run(ctx context.Context, changed func()) error {
	tick := time.NewTicker(scanInterval)
	defer tick.Stop()
	for {
		if b.Scan() {
			changed()
		}
		b.begin()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// begin begins the parts that are new.
func (b *Board) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.parts {
		if p.begin != nil {
			p.begin()
			p.begin = nil
		}
	}
}

// Close releases all lines. Call it when the board is no longer served, so that a pulse can end.
func (b *Board) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.parts {
		p.end()
	}
}

// same reports whether the part is still the one that was found. Otherwise its number may be
// that of another one. It is asked before a part is opened, since the last scan can be a second
// ago.
func (p *part) same() bool { return keyOf(p.dir) == p.key }

// check returns an error if the part is not the same.
func (p *part) check() error {
	if p.same() {
		return nil
	}
	return &thing.RefusedError{Reason: fmt.Sprintf("Nothing was changed: %s was unplugged or replaced. List the tools again", p.what)}
}

func (p *part) end() {
	if p.close != nil {
		p.close()
	}
}

// Scan looks for parts once, and reports whether the tools have changed.
func (b *Board) Scan() (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	level := slog.LevelDebug // what is there from the start is in the list of tools
	if b.scanned {
		level = slog.LevelInfo
	}
	present := make(map[string]bool)
	var added []*part
	ignored := make(map[string]bool)
	for _, f := range b.finders {
		for _, dir := range b.list(f.dir, f.name) {
			key := keyOf(dir)
			present[key] = true
			if b.parts[key] != nil || b.ignored[key] {
				ignored[key] = b.parts[key] == nil
				continue
			}
			switch p, err := f.find(dir); {
			case errors.Is(err, fs.ErrPermission):
				b.deny(dir, err)
			case err != nil: // it appears or vanishes at this moment
			case p == nil:
				ignored[key] = true
			default:
				p.dir, p.key, p.name = dir, key, cmp.Or(p.name, slug(filepath.Base(dir)))
				added = append(added, p)
			}
		}
	}
	b.ignored = ignored
	for key, p := range b.parts {
		if !present[key] {
			b.Remove(p.tools...)
			p.end()
			delete(b.parts, key)
			b.config.Log.Info("unplugged: "+p.what, "tools", p.name)
			changed = true
		}
	}
	for _, p := range added {
		p.name = b.freeName(p.name, p.actions)
		t := &partTools{board: b, part: p}
		p.declare(t)
		b.parts[p.key] = p
		b.config.Log.Log(context.Background(), level, "found: "+p.what, "tools", p.name)
		changed = true
	}
	b.scanned = true
	return changed
}

// builtin are the names of tools that package thing has for pins.
var builtin = []string{
	"get_info", "list_tools", "gpio_write", "gpio_read", "pwm_write", "adc_read", "get_pin_summary", "get_pin_buffer", "get_pin_events",
}

// freeName returns a name for a part whose tools do not exist yet.
func (b *Board) freeName(name string, actions []string) string {
	taken := slices.Clone(builtin)
	for _, t := range b.Tools() {
		taken = append(taken, t.Name)
	}
	free := name
	for n := 2; slices.ContainsFunc(actions, func(action string) bool { return slices.Contains(taken, toolName(free, action)) }); n++ {
		free = fmt.Sprintf("%s_%d", name, n)
	}
	return free
}

// deny logs once that a part may not be used. It is called with mu held.
func (b *Board) deny(dir string, err error) {
	if !b.denied[dir] {
		b.denied[dir] = true
		b.config.Log.Warn("left out; to learn which permission is missing, run `ferrule doctor`", "part", filepath.Base(dir), "err", err)
	}
}

// partTools declares the tools of a part.
type partTools struct {
	board *Board
	part  *part
}

// name returns the name of a tool: that of the part, with a suffix if it is not empty.
func (t *partTools) name(action string) string {
	name := toolName(t.part.name, action)
	if !slices.Contains(t.part.actions, action) {
		panic("linux: " + name + " is not among the actions of its part")
	}
	t.part.tools = append(t.part.tools, name)
	return name
}

func toolName(part, action string) string {
	if action == "" {
		return part
	}
	return part + "_" + action
}

// reads declares a tool that the gateway polls. Every number that it returns becomes a signal.
func reads[Out any](t *partTools, action, text string, fn func(ctx context.Context) (Out, error)) {
	thing.Tool(t.board.Device, t.name(action), text, func(ctx context.Context, _ struct{}) (out Out, err error) {
		if !t.part.same() {
			return out, fmt.Errorf("%s cannot be read: it was unplugged or replaced", t.part.what)
		}
		return fn(ctx)
	}, thing.Reads(), thing.Polled(t.board.config.Poll))
}
