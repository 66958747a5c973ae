package hardware

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/warthog618/go-gpiocdev/uapi"
	"golang.org/x/sys/unix"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
)

// Line is an open line of a GPIO chip. Its methods may be called concurrently.
//
// It uses the system calls of go-gpiocdev and not its watcher, which ignores errors and so never
// ends when the chip is unplugged.
type Line struct {
	name   string // for messages: gpiochip0 line 17
	config LineConfig
	file   *os.File      // of the line; also read for its edges
	ended  chan struct{} // closed when edges are no longer counted; nil if they never were

	mu    sync.Mutex
	mode  Mode
	edges EdgeCount
	seq   uint32 // of the last edge
	lost  error  // why edges are no longer counted
}

// OpenLine opens a line of a GPIO chip, such as gpiochip0 or /dev/gpiochip0. An output gets its
// initial level.
func OpenLine(chip string, offset int, config LineConfig) (*Line, error) {
	if err := config.check(offset); err != nil {
		return nil, err
	}
	f, info, err := openChip(chip)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := &Line{name: fmt.Sprintf("%s line %d", chipName(chip), offset), config: config, mode: config.Mode}
	if offset >= int(info.Lines) {
		return nil, fmt.Errorf("%s does not exist: the chip has lines 0 to %d", l.name, int(info.Lines)-1)
	}
	request := uapi.LineRequest{Lines: 1, Config: l.settings(config.Mode, config.Initial), EventBufferSize: 256}
	request.Offsets[0] = uint32(offset)
	copy(request.Consumer[:len(request.Consumer)-1], "ferrule")
	if err := uapi.GetLine(f.Fd(), &request); err != nil {
		if errors.Is(err, unix.EBUSY) {
			if line, infoErr := uapi.GetLineInfoV2(f.Fd(), offset); infoErr == nil {
				err = fmt.Errorf("%w: used by %q", err, uapi.BytesToString(line.Consumer[:]))
			}
		}
		return nil, fmt.Errorf("opening %s as %s: %w", l.name, config.Mode, err)
	}
	fd := int(request.Fd)
	if err := unix.SetNonblock(fd, true); err != nil { // so that Close ends a Read
		unix.Close(fd)
		return nil, fmt.Errorf("opening %s: %w", l.name, err)
	}
	l.file = os.NewFile(uintptr(fd), l.name)
	if config.Edges {
		l.ended = make(chan struct{})
		go l.count()
	}
	return l, nil
}

func chipName(chip string) string { return strings.TrimPrefix(chip, "/dev/") }

func openChip(chip string) (*os.File, uapi.ChipInfo, error) {
	f, err := os.Open(kernelfs.Path("dev", chipName(chip)))
	if err != nil {
		return nil, uapi.ChipInfo{}, fmt.Errorf("opening the GPIO chip: %w", gpioAccess.explain(err))
	}
	info, err := uapi.GetChipInfo(f.Fd())
	if err != nil {
		f.Close()
		return nil, info, fmt.Errorf("%s is not a GPIO chip: %w", f.Name(), err)
	}
	return f, info, nil
}

// DescribeChip returns the lines of a GPIO chip, such as gpiochip0. It opens none of them.
func DescribeChip(chip string) (Chip, error) {
	f, info, err := openChip(chip)
	if err != nil {
		return Chip{}, err
	}
	defer f.Close()
	described := Chip{Name: chipName(chip), Label: uapi.BytesToString(info.Label[:])}
	for offset := range int(info.Lines) {
		line, err := uapi.GetLineInfoV2(f.Fd(), offset)
		if err != nil {
			return Chip{}, fmt.Errorf("reading %s line %d: %w", chipName(chip), offset, err)
		}
		described.Lines = append(described.Lines, LineInfo{
			Offset: offset, Name: uapi.BytesToString(line.Name[:]),
			Used: line.Flags.IsUsed(), Consumer: uapi.BytesToString(line.Consumer[:]),
			Output: line.Flags.IsOutput(), ActiveLow: line.Flags.IsActiveLow(),
		})
	}
	return described, nil
}

// settings returns the line's configuration in a mode. A new output begins with a level.
func (l *Line) settings(mode Mode, active bool) (c uapi.LineConfig) {
	c.Flags = map[Mode]uapi.LineFlagV2{
		AsIs:            0,
		Input:           uapi.LineFlagV2Input,
		InputPullUp:     uapi.LineFlagV2Input | uapi.LineFlagV2BiasPullUp,
		InputPullDown:   uapi.LineFlagV2Input | uapi.LineFlagV2BiasPullDown,
		Output:          uapi.LineFlagV2Output,
		OutputOpenDrain: uapi.LineFlagV2Output | uapi.LineFlagV2OpenDrain,
	}[mode]
	if l.config.ActiveLow {
		c.Flags |= uapi.LineFlagV2ActiveLow
	}
	if mode.Writes() {
		level := 0
		if active {
			level = 1
		}
		c.AddAttribute(uapi.LineConfigAttribute{Attr: uapi.OutputValues(uapi.NewLineBitmap(level)).Encode(), Mask: 1})
		return c
	}
	if l.config.Edges {
		c.Flags |= uapi.LineFlagV2EdgeBoth
	}
	if l.config.Debounce > 0 {
		c.AddAttribute(uapi.LineConfigAttribute{Attr: uapi.DebouncePeriod(l.config.Debounce).Encode(), Mask: 1})
	}
	return c
}

// control calls a function with the line's file descriptor.
func (l *Line) control(fn func(fd uintptr) error) error {
	conn, err := l.file.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	if err := conn.Control(func(fd uintptr) { callErr = fn(fd) }); err != nil {
		return err
	}
	return callErr
}

// failed explains the error of a system call on the line.
func (l *Line) failed(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENODEV):
		err = fmt.Errorf("%w: the GPIO chip was unplugged or its driver was unloaded", err)
	case errors.Is(err, os.ErrClosed):
		err = errors.New("the line is closed")
	}
	return fmt.Errorf("%s %s: %w", doing, l.name, err)
}

// Mode returns the line's mode.
func (l *Line) Mode() Mode {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mode
}

// Read returns whether the line is active: high, or low if it is ActiveLow.
func (l *Line) Read() (bool, error) {
	values := uapi.LineValues{Mask: 1}
	err := l.control(func(fd uintptr) error { return uapi.GetLineValuesV2(fd, &values) })
	return values.Get(0) != 0, l.failed("reading", err)
}

// Write sets an output. For an input, it returns a thing.RefusedError.
func (l *Line) Write(active bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mode.Writes() {
		return refused("%s is not an output: its mode is %s", l.name, l.mode)
	}
	return l.set(active)
}

// set sets an output. It is called with mu held.
func (l *Line) set(active bool) error {
	values := uapi.LineValues{Mask: 1}
	if active {
		values.Bits = 1
	}
	return l.failed("setting", l.control(func(fd uintptr) error { return uapi.SetLineValuesV2(fd, values) }))
}

// Drive sets an output. A line with another mode becomes an output with this level, in one
// step, so that it never has the wrong one.
func (l *Line) Drive(active bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mode.Writes() {
		return l.set(active)
	}
	settings := l.settings(Output, active)
	if err := l.control(func(fd uintptr) error { return uapi.SetLineConfigV2(fd, &settings) }); err != nil {
		return l.failed("driving", err)
	}
	l.mode = Output
	return nil
}

// SetMode changes the line's mode. A new output gets the initial level of its configuration.
// An output that keeps its mode is left alone.
func (l *Line) SetMode(mode Mode) error {
	if !slices.Contains(modes, mode) || mode == AsIs {
		return refused("unknown mode %q of a GPIO line", mode)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if mode == l.mode {
		return nil
	}
	settings := l.settings(mode, l.config.Initial)
	if err := l.control(func(fd uintptr) error { return uapi.SetLineConfigV2(fd, &settings) }); err != nil {
		return l.failed("changing the mode of", err)
	}
	l.mode = mode
	return nil
}

// Edges returns how often the line has changed. It is an error if the configuration did not ask
// for it, or the chip was unplugged.
func (l *Line) Edges() (EdgeCount, error) {
	if l.ended == nil {
		return EdgeCount{}, fmt.Errorf("edges of %s are not counted: its configuration does not ask for it", l.name)
	}
	_, err := l.Read() // older kernels do not end the wait for edges when a chip is unplugged
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.edges, cmp.Or(err, l.failed("counting edges of", l.lost))
}

// count counts edges until the line is closed or unplugged.
func (l *Line) count() {
	defer close(l.ended)
	const size = 48 // of an event: time, kind, line, two sequence numbers, reserved
	events := make([]byte, 64*size)
	for {
		n, err := l.file.Read(events)
		l.mu.Lock()
		for e := events[:n]; len(e) >= size; e = e[size:] {
			l.counted(uapi.LineEventID(binary.NativeEndian.Uint32(e[8:])), binary.NativeEndian.Uint32(e[20:]))
		}
		l.lost = err
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// counted counts one edge. A gap in the sequence means that the kernel's buffer was full.
func (l *Line) counted(kind uapi.LineEventID, seq uint32) {
	if seq > l.seq {
		l.edges.Missed += uint64(seq - l.seq - 1)
	}
	l.seq = seq
	switch kind {
	case uapi.LineEventRisingEdge:
		l.edges.Rising++
	case uapi.LineEventFallingEdge:
		l.edges.Falling++
	}
}

// Close gives the line back to the system. What an output does then depends on the chip; most
// keep its level.
func (l *Line) Close() error {
	err := l.file.Close()
	if l.ended != nil {
		<-l.ended
	}
	return err
}
