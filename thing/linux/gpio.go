//go:build linux

package linux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/hardware"
)

// gpioChips opens GPIO chips. Tests replace it.
type gpioChips interface {
	describe(chip string) (hardware.Chip, error)
	open(chip string, offset int, config hardware.LineConfig) (gpioLine, error)
}

// gpioLine is a reserved line.
type gpioLine interface {
	Read() (bool, error)
	// Drive makes the line an output with a level.
	Drive(active bool) error
	Close() error
}

type realChips struct{}

func (realChips) describe(chip string) (hardware.Chip, error) { return hardware.DescribeChip(chip) }

func (realChips) open(chip string, offset int, config hardware.LineConfig) (gpioLine, error) {
	return hardware.OpenLine(chip, offset, config)
}

// maxLines is the limit of offered lines of a chip.
const maxLines = 256

// findGPIO finds a GPIO chip with lines to offer.
func (b *Board) findGPIO(dir string) (*part, error) {
	file := filepath.Base(dir)
	described, err := b.chips.describe(file)
	if err != nil {
		return nil, err
	}
	c := &gpioChip{board: b, file: file, what: "the GPIO chip " + clean(described.Label), offsets: make(map[string]int), reserved: make(map[string]gpioLine), gone: make(chan struct{})}
	for _, line := range b.offered(dir, described) {
		c.names = append(c.names, line.Name)
		c.offsets[line.Name] = line.Offset
	}
	if len(c.names) == 0 {
		return nil, nil
	}
	return &part{name: placeName(described.Label, dir), what: c.what, actions: []string{"lines", "read", "write", "pulse"}, declare: c.declare, begin: c.begin, close: c.close}, nil
}

// offered returns the lines of a chip that have a name of their own and a wanted one, that no
// driver or program uses, and whose pins belong to no peripheral.
func (b *Board) offered(dir string, chip hardware.Chip) (lines []hardware.LineInfo) {
	seen := make(map[string]bool)
	taken := b.peripheralPins(dir)
	for _, line := range chip.Lines {
		if name := line.Name; name == "" || name != clean(name) || seen[name] || line.Used || taken[line.Offset] || !b.wanted(name) || len(lines) == maxLines {
			continue
		}
		seen[line.Name] = true
		lines = append(lines, line)
	}
	return lines
}

func (b *Board) wanted(name string) bool {
	return len(b.config.Lines) == 0 || slices.ContainsFunc(b.config.Lines, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// gpioChip is a GPIO chip and its lines that are reserved.
type gpioChip struct {
	board   *Board
	part    *part
	file    string // gpiochip0
	what    string
	names   []string
	offsets map[string]int

	mu       sync.Mutex
	reserved map[string]gpioLine
	gone     chan struct{} // closed when the chip is
	closed   bool
}

type lineRef struct {
	Line string `json:"line"`
}

type lineLevel struct {
	Line  string `json:"line"`
	Value bool   `json:"value" jsonschema:"true is high"`
}

type linePulse struct {
	Line         string `json:"line"`
	Value        bool   `json:"value"`
	Milliseconds int    `json:"milliseconds"`
}

// lineLevels are the levels of the reserved lines.
type lineLevels struct {
	Reserved int             `json:"reserved" jsonschema:"number of lines that are reserved here"`
	Level    map[string]bool `json:"level" jsonschema:"their levels, true is high"`
}

// maxPulse is the length of the longest pulse. Other calls wait meanwhile.
const maxPulse = 5 * time.Second

func (c *gpioChip) declare(t *partTools) {
	d := c.board.Device
	c.part = t.part
	schema := func(more, required string) thing.ToolOption {
		names, err := json.Marshal(c.names)
		if err != nil {
			panic(err) // strings can be encoded
		}
		return thing.WithSchema(fmt.Appendf(nil, `{"type":"object","properties":{"line":{"type":"string","enum":%s}%s},"required":["line"%s],"additionalProperties":false}`, names, more, required))
	}
	const value = `,"value":{"type":"boolean","description":"true is high"}`
	reads(t, "lines", fmt.Sprintf("Read the lines of %s that were used before", c.what), func(context.Context) (lineLevels, error) { return c.levels() })
	thing.Tool(d, t.name("read"), fmt.Sprintf("Read a line of %s. Its direction stays as it is", c.what), func(_ context.Context, in lineRef) (lineLevel, error) {
		level, err := c.read(in.Line)
		return lineLevel{in.Line, level}, err
	}, schema("", ""), thing.Reads())
	thing.Tool(d, t.name("write"), fmt.Sprintf("Make a line of %s an output and set it. It keeps its level until it is set again or the board's program ends", c.what), func(_ context.Context, in lineLevel) (lineLevel, error) {
		return in, c.drive(in.Line, in.Value)
	}, schema(value, `,"value"`))
	thing.Tool(d, t.name("pulse"), fmt.Sprintf("Make a line of %s an output, set it for a time, then set it to the opposite", c.what), func(ctx context.Context, in linePulse) (lineLevel, error) {
		return lineLevel{in.Line, !in.Value}, c.pulse(ctx, in)
	}, schema(value+fmt.Sprintf(`,"milliseconds":{"type":"integer","minimum":1,"maximum":%d}`, maxPulse.Milliseconds()), `,"value","milliseconds"`))
}

// begin reserves the lines that the owner has named.
func (c *gpioChip) begin() {
	if len(c.board.config.Lines) == 0 {
		return
	}
	for _, name := range c.names {
		if _, err := c.read(name); err != nil {
			c.board.config.Log.Warn("a line cannot be read", "line", name, "err", err)
		}
	}
}

// line returns a reserved line. Otherwise it reserves it with a configuration, and reports that
// it is new.
func (c *gpioChip) line(name string, config hardware.LineConfig) (line gpioLine, isNew bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false, &thing.RefusedError{Reason: fmt.Sprintf("Nothing was changed: %s is gone", c.what)}
	}
	if line := c.reserved[name]; line != nil {
		return line, false, nil
	}
	if err := c.part.check(); err != nil {
		return nil, false, err
	}
	line, err = c.board.chips.open(c.file, c.offsets[name], config)
	if err != nil {
		return nil, false, refusal(fmt.Errorf("reserving line %s: %w", name, err))
	}
	c.reserved[name] = line
	return line, true, nil
}

func (c *gpioChip) read(name string) (bool, error) {
	line, _, err := c.line(name, hardware.LineConfig{Mode: hardware.AsIs})
	if err != nil {
		return false, err
	}
	level, err := line.Read()
	if err != nil {
		return false, fmt.Errorf("line %s cannot be read: %w", name, err)
	}
	return level, nil
}

func (c *gpioChip) levels() (lineLevels, error) {
	c.mu.Lock()
	reserved := make(map[string]gpioLine, len(c.reserved))
	for name, line := range c.reserved {
		reserved[name] = line
	}
	c.mu.Unlock()
	all := lineLevels{Reserved: len(reserved), Level: make(map[string]bool)}
	for name, line := range reserved {
		level, err := line.Read()
		if err != nil {
			return all, fmt.Errorf("line %s cannot be read: %w", name, err)
		}
		all.Level[name] = level
	}
	return all, nil
}

// drive sets a line. One that is not reserved yet gets its level in the same step.
func (c *gpioChip) drive(name string, level bool) error {
	line, isNew, err := c.line(name, hardware.LineConfig{Mode: hardware.Output, Initial: level})
	if err != nil || isNew {
		return err
	}
	if err := line.Drive(level); err != nil {
		return fmt.Errorf("line %s may be %s or as before: %w", name, levelName(level), err)
	}
	return nil
}

func levelName(high bool) string {
	if high {
		return "high"
	}
	return "low"
}

// pulse sets a line for a time. If the caller is gone, the line is set back at once.
func (c *gpioChip) pulse(ctx context.Context, in linePulse) error {
	if ctx.Err() != nil {
		return &thing.RefusedError{Reason: "Nothing was changed: the call was cancelled before it began"}
	}
	if err := c.drive(in.Line, in.Value); err != nil {
		return err
	}
	start := time.Now()
	over := time.NewTimer(time.Duration(in.Milliseconds) * time.Millisecond)
	defer over.Stop()
	var early error
	select {
	case <-over.C:
	case <-ctx.Done():
		early = fmt.Errorf("the pulse was cut short after %v, and line %s is %s again", time.Since(start).Round(time.Millisecond), in.Line, levelName(!in.Value))
	case <-c.gone:
		early = fmt.Errorf("%s was unplugged %v after line %s was set %s, and it was not set back", c.what, time.Since(start).Round(time.Millisecond), in.Line, levelName(in.Value))
		return early
	}
	if err := c.drive(in.Line, !in.Value); err != nil {
		var refused *thing.RefusedError
		reason := err
		if errors.As(err, &refused) { // of the second step only
			reason = errors.New(strings.TrimPrefix(refused.Reason, "Nothing was changed: "))
		}
		return fmt.Errorf("line %s was set %s, and could not be set back: %w", in.Line, levelName(in.Value), reason)
	}
	return early
}

// close releases all lines.
func (c *gpioChip) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	close(c.gone)
	for name, line := range c.reserved {
		line.Close()
		delete(c.reserved, name)
	}
}
