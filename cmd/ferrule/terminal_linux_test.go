package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/devicetext"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/meter"
	"github.com/ferrulehq/ferrule/internal/testenv/screen"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// openTerminal returns a terminal for a program, and its screen. It is read after reads
// is closed, or at once if reads is nil.
func openTerminal(t *testing.T, width, height int, reads <-chan struct{}) (f *os.File, shown *screen.Screen) {
	t.Helper()
	f, shown, _ = openKeyboard(t, width, height, reads)
	return f, shown
}

// openKeyboard does the same, and returns the keys of a person.
func openKeyboard(t *testing.T, width, height int, reads <-chan struct{}) (f *os.File, shown *screen.Screen, keys io.Writer) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	control := func(what uintptr, arg unsafe.Pointer) {
		t.Helper()
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), what, uintptr(arg)); errno != 0 {
			t.Fatal(errno)
		}
	}
	var unlock, number int32
	control(syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	control(syscall.TIOCGPTN, unsafe.Pointer(&number))
	size := [4]uint16{uint16(height), uint16(width)}
	control(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	if f, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	shown = screen.New(width, height)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if reads != nil {
			<-reads
		}
		io.Copy(shown, master) // until the program's end is closed
	}()
	t.Cleanup(func() {
		f.Close()
		<-over
		master.Close()
	})
	return f, shown, master
}

// watchRobot runs `ferrule watch robot` until stop is called.
func watchRobot(t *testing.T, out *os.File, m *meter.Meter, args ...string) (stop func()) {
	t.Helper()
	c := newCommandLine(t)
	data := os.Getenv("FERRULE_DATA")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	meter.Serve(c.t, data, m)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, append([]string{"watch", "robot"}, args...), out, out) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("it exits with %d", code)
		}
	})
	t.Cleanup(stop)
	return stop
}

// ages matches the ages of values on a screen.
var ages = regexp.MustCompile(`(?m)(now|\ds)$`)

// TestWatchOnTerminal checks that known values are shown at once, and that each signal
// has a colored line that is redrawn in place.
func TestWatchOnTerminal(t *testing.T) {
	for colour, without := range map[bool]string{true: "", false: "1"} {
		t.Run("NO_COLOR="+without, func(t *testing.T) {
			t.Setenv("TERM", "xterm")
			t.Setenv("NO_COLOR", without)
			out, shown := openTerminal(t, 70, 10, nil)
			var m meter.Meter
			stop := watchRobot(t, out, &m)
			known := "Watching robot. Press Ctrl-C to stop.\n" + fmt.Sprintf("heat  %40s  21.5 °C  1h", "▄")
			wait.For(t, "the latest values are shown", func() bool { return strings.HasPrefix(shown.Text(), known) })
			wait.For(t, "it subscribes", func() bool { return m.Measure(meter.Reading("robot", "speed", 1)) == 1 })
			ring := make([]float64, 48)
			for i := range ring {
				ring[i] = float64(i % 8)
			}
			m.Measure(meter.Reading("robot", "heat", ring...))
			for _, v := range []float64{2, 3} {
				time.Sleep(time.Millisecond)
				m.Measure(meter.Reading("robot", "speed", v))
			}
			want := "Watching robot. Press Ctrl-C to stop.\n" +
				"heat   " + strings.Repeat("▁▂▃▄▅▆▇█", 5) + "  7 °C     AGE\n" +
				fmt.Sprintf("speed  %40s  3 °C     AGE", "▁▅█")
			wait.For(t, "both are drawn", func() bool { return ages.ReplaceAllString(shown.Text(), "AGE") == want })
			stop()
			if _, styled, unknown, row := shown.History(); unknown != "" || styled != colour || row != 3 {
				t.Errorf("it wrote %q, coloured %t, and the cursor is in line %d", unknown, styled, row)
			}
		})
	}
}

// TestSlowTerminal checks that measuring does not wait for a slow terminal, which later
// shows the newest values and what was skipped.
func TestSlowTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	reads := make(chan struct{})
	read := sync.OnceFunc(func() { close(reads) })
	defer read()
	out, shown := openTerminal(t, 70, 60, reads)
	var m meter.Meter
	watchRobot(t, out, &m)
	many := func(value float64) ferrule.Reading { // more output than the terminal buffers
		var r ferrule.Reading
		for i := range 50 {
			one := meter.Reading("robot", fmt.Sprintf("s%02d", i), value, value)
			r.Device, r.Batches = one.Device, append(r.Batches, one.Batches...)
		}
		return r
	}
	wait.For(t, "it subscribes", func() bool { return m.Measure(many(1)) == 1 })
	const count = 5000
	slowest, r := time.Duration(0), many(2)
	for range count {
		start := time.Now()
		m.Measure(r)
		slowest = max(slowest, time.Since(start))
	}
	read()
	wait.For(t, "the number of skipped events is shown", func() bool {
		m.Measure(many(99))
		time.Sleep(20 * time.Millisecond)
		text := shown.Text()
		return strings.Contains(text, " events were skipped: the terminal is too slow\n") && strings.Contains(text, "  99 °C")
	})
	figure.AtMost(t, fmt.Sprintf("one of %d readings that a slow terminal shows", count), slowest, time.Second)
}

// TestDumbTerminal checks that a terminal without cursor movement gets one line per
// reading.
func TestDumbTerminal(t *testing.T) {
	t.Setenv("TERM", "dumb")
	out, shown := openTerminal(t, 70, 10, nil)
	var m meter.Meter
	stop := watchRobot(t, out, &m)
	wait.For(t, "it subscribes", func() bool { return m.Measure(meter.Reading("robot", "heat", 1, 2)) == 1 })
	wait.For(t, "it is shown", func() bool { return strings.Contains(shown.Text(), " robot heat 2 °C, the last of 2 samples") })
	stop()
	if _, styled, unknown, _ := shown.History(); styled || unknown != "" {
		t.Errorf("it wrote %q, coloured %t", unknown, styled)
	}
}

// TestTableFits checks that a table does not wrap on a terminal of 80 columns.
func TestTableFits(t *testing.T) {
	t.Setenv("TERM", "xterm")
	out, shown := openTerminal(t, 80, 24, nil)
	a := &app{stdout: out, stderr: io.Discard}
	header, rows := devicetext.Table([]builtin.DescribedDevice{
		{ID: "kitchen-temperature-sensor-2", State: "offline", Trust: "adopted", Model: "bread-compact-wifi-lcd", Version: "2.4.2", Tools: 12, Address: "usb-Silicon_Labs_CP2102N-0123456789abcdef", Reason: "the port is used by another program, which has to be ended first"},
		{ID: "lamp", State: "online", Trust: "adopted", Model: "lamp", Version: "1.0.0", Tools: 3, Address: "192.168.1.20:4242"},
	})
	if err := a.table(header, rows, func(_, cell string) string { return cell }, "VERSION"); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the last row", func() bool { return strings.Contains(shown.Text(), "192.") })
	for i, want := range []string{"DEVICE", "kitchen-temperature-sensor-2 ", "  not reached yet", "  first", "lamp"} {
		if lines := strings.Split(strings.TrimSpace(shown.Text()), "\n"); len(lines) != 5 || !strings.HasPrefix(lines[i], want) {
			t.Fatalf("got\n%s", shown.Text())
		}
	}
}
