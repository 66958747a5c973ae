package hardware

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warthog618/go-gpiocdev/uapi"

	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
)

// The tests in this file need simulated hardware of the kernel, which an ordinary computer does
// not have. They are skipped there, and run in the guest of internal/testenv/board.

// simChip is a GPIO chip of the kernel's gpio-sim.
type simChip struct {
	t      *testing.T
	config string // its folder in configfs
	name   string // in /dev
	files  string // its folder in sysfs
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// plugChip adds a simulated chip.
func plugChip(t *testing.T, lines int) *simChip {
	t.Helper()
	const folder = "/sys/kernel/config/gpio-sim"
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("needs the kernel's gpio-sim: %v", err)
	}
	c := &simChip{t: t, config: filepath.Join(folder, t.Name())}
	if err := os.MkdirAll(filepath.Join(c.config, "bank"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, c.config+"/bank/num_lines", strconv.Itoa(lines))
	write(t, c.config+"/live", "1")
	t.Cleanup(func() {
		c.unplug()
		os.Remove(c.config + "/bank")
		os.Remove(c.config)
	})
	c.name = strings.TrimSpace(text(t, c.config+"/bank/chip_name"))
	c.files = filepath.Join("/sys/devices/platform", strings.TrimSpace(text(t, c.config+"/dev_name")), c.name)
	return c
}

func (c *simChip) unplug() { os.WriteFile(c.config+"/live", []byte("0"), 0o644) } // also when it is already

// level returns the level of a line, from outside.
func (c *simChip) level(line int) string {
	c.t.Helper()
	return strings.TrimSpace(text(c.t, fmt.Sprintf("%s/sim_gpio%d/value", c.files, line)))
}

// pull drives an input from outside.
func (c *simChip) pull(line int, up bool) {
	c.t.Helper()
	direction := "pull-down"
	if up {
		direction = "pull-up"
	}
	write(c.t, fmt.Sprintf("%s/sim_gpio%d/pull", c.files, line), direction)
}

func addLine(t *testing.T, d *thing.Device, chip *simChip, offset int, config LineConfig) *Line {
	t.Helper()
	line, err := GPIO(d, chip.name, offset, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	return line
}

func TestKernelGPIO(t *testing.T) {
	chip := plugChip(t, 8)
	board := thing.New("board", "1")
	addLine(t, board, chip, 0, LineConfig{Name: "pump", Mode: Output, Endangers: true})
	addLine(t, board, chip, 1, LineConfig{Name: "lamp", Mode: Output, Initial: true, ActiveLow: true})
	addLine(t, board, chip, 2, LineConfig{Name: "button", Mode: InputPullUp, Poll: time.Second})
	driven := addLine(t, board, chip, 3, LineConfig{Modes: []Mode{Input, Output}, Initial: true})
	wantEffects(t, board, map[string]string{
		"pump_read": "reads", "pump_write": "endangers", "lamp_read": "reads", "lamp_write": "changes",
		"button_read": "reads", "gpio3_read": "reads", "gpio3_write": "changes", "gpio3_mode": "changes",
	})
	levels := func(want string) {
		t.Helper()
		got := ""
		for line := range 4 {
			got += chip.level(line)
		}
		if got != want {
			t.Errorf("levels %s, want %s", got, want)
		}
	}
	levels("0010") // the lamp is active and low; the button has its pull-up
	want(t, board, "pump_write", `{"value":true}`, `{"value":true,"mode":"output"}`)
	want(t, board, "lamp_read", `{}`, `{"value":true,"mode":"output"}`)
	want(t, board, "lamp_write", `{"value":false}`, `{"value":false,"mode":"output"}`)
	levels("1110")
	want(t, board, "pump_read", `{}`, `{"value":true,"mode":"output"}`)
	want(t, board, "button_read", `{}`, `{"value":true,"mode":"input_pull_up"}`)
	chip.pull(2, false)
	want(t, board, "button_read", `{}`, `{"value":false,"mode":"input_pull_up"}`)

	wantRefused(t, board, "gpio3_write", `{"value":true}`, "is not an output")
	levels("1100")
	want(t, board, "gpio3_mode", `{"mode":"output"}`, `{"mode":"output"}`)
	levels("1101") // its initial level
	want(t, board, "gpio3_write", `{"value":false}`, `{"value":false,"mode":"output"}`)
	want(t, board, "gpio3_mode", `{"mode":"output"}`, `{"mode":"output"}`)
	levels("1100") // the mode stayed, and so did the level
	want(t, board, "gpio3_mode", `{"mode":"input"}`, `{"mode":"input"}`)
	if err := driven.Drive(false); err != nil {
		t.Fatal(err)
	}
	levels("1100")
	want(t, board, "gpio3_mode", `{"mode":"input"}`, `{"mode":"input"}`)
	want(t, board, "gpio3_mode", `{"mode":"output"}`, `{"mode":"output"}`)
	levels("1101") // its initial level, not the last one
	want(t, board, "gpio3_mode", `{"mode":"input"}`, `{"mode":"input"}`)
	wantRefused(t, board, "gpio3_mode", `{"mode":"input_pull_up"}`, "mode")
	wantRefused(t, board, "pump_write", `{"value":1}`, "value")
	wantRefused(t, board, "pump_write", `{}`, "value")

	if _, err := OpenLine(chip.name, 0, LineConfig{}); err == nil || !strings.Contains(err.Error(), `used by "ferrule"`) {
		t.Errorf("opening a line twice: %v", err)
	}
	if _, err := OpenLine(chip.name, 8, LineConfig{}); err == nil || !strings.Contains(err.Error(), "lines 0 to 7") {
		t.Errorf("opening line 8 of 8: %v", err)
	}
	described, err := DescribeChip("/dev/" + chip.name)
	if err != nil || len(described.Lines) != 8 || described.Name != chip.name {
		t.Fatalf("got %+v, %v", described, err)
	}
	if l := described.Lines[1]; !l.Used || l.Consumer != "ferrule" || !l.Output || !l.ActiveLow || described.Lines[7].Used {
		t.Errorf("got %+v", described.Lines)
	}
}

// TestKernelEdges counts edges, and goes on after the line was an output.
func TestKernelEdges(t *testing.T) {
	chip := plugChip(t, 2)
	board := thing.New("board", "1")
	line := addLine(t, board, chip, 0, LineConfig{Name: "meter", Mode: InputPullDown, Edges: true, Modes: []Mode{Input, Output}})
	const pulses = 300
	for range pulses {
		chip.pull(0, true)
		chip.pull(0, false)
	}
	wait.For(t, "all edges are counted", func() bool {
		count, err := line.Edges()
		if err != nil {
			t.Fatal(err)
		}
		return count.Rising+count.Falling+count.Missed == 2*pulses
	})
	if _, err := call(t, board, "meter_edges", `{}`); err != nil {
		t.Error(err)
	}
	// An output has no edges, and counting goes on when it is an input again.
	before, _ := line.Edges()
	want(t, board, "meter_mode", `{"mode":"output"}`, `{"mode":"output"}`)
	want(t, board, "meter_write", `{"value":true}`, `{"value":true,"mode":"output"}`)
	want(t, board, "meter_write", `{"value":false}`, `{"value":false,"mode":"output"}`)
	want(t, board, "meter_mode", `{"mode":"input"}`, `{"mode":"input"}`)
	chip.pull(0, true)
	var after EdgeCount
	wait.For(t, "the edge is counted", func() bool {
		var err error
		if after, err = line.Edges(); err != nil {
			t.Fatal(err)
		}
		return after.Rising == before.Rising+1
	})
	if after.Falling != before.Falling || after.Missed != before.Missed {
		t.Errorf("got %+v after %+v", after, before)
	}
}

// TestEdgeGaps checks that edges which the kernel dropped are counted as missed.
func TestEdgeGaps(t *testing.T) {
	var line Line
	for _, e := range []struct {
		kind uapi.LineEventID
		seq  uint32
	}{{uapi.LineEventRisingEdge, 1}, {uapi.LineEventFallingEdge, 2}, {uapi.LineEventRisingEdge, 7}} {
		line.counted(e.kind, e.seq)
	}
	if want := (EdgeCount{Rising: 2, Falling: 1, Missed: 4}); line.edges != want {
		t.Errorf("got %+v, want %+v", line.edges, want)
	}
}

// TestKernelUnplug checks what a line says when its chip is unplugged, and that counting edges
// then costs nothing.
func TestKernelUnplug(t *testing.T) {
	chip := plugChip(t, 2)
	board := thing.New("board", "1")
	addLine(t, board, chip, 0, LineConfig{Name: "meter", Edges: true})
	addLine(t, board, chip, 1, LineConfig{Name: "pump", Mode: Output})
	chip.unplug()
	wantFailed(t, board, "pump_write", `{"value":true}`, "unplugged")
	wantFailed(t, board, "pump_read", `{}`, "unplugged")
	wantFailed(t, board, "meter_edges", `{}`, "unplugged")
	before := processorTime(t)
	time.Sleep(200 * time.Millisecond) // what is measured
	figure.AtMost(t, "processor time of an unplugged line in 200 ms", processorTime(t)-before, 100*time.Millisecond)
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// stubBus returns the number of the kernel's i2c-stub, with a chip at 0x48.
func stubBus(t *testing.T) int {
	t.Helper()
	return busNamed(t, "SMBus stub", "the kernel's i2c-stub with chip_addr=0x48")
}

// busNamed returns the number of an I2C bus. Without it, the test is skipped.
func busNamed(t *testing.T, name, needed string) int {
	t.Helper()
	names, err := filepath.Glob("/sys/bus/i2c/devices/i2c-*/name")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range names {
		if strings.Contains(text(t, file), name) {
			n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "i2c-"))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Skip("needs " + needed)
	return 0
}

func TestKernelI2C(t *testing.T) {
	bus := stubBus(t)
	board := thing.New("board", "1")
	if _, err := I2C(board, bus, I2CConfig{Name: "roof"}); err != nil {
		t.Fatal(err)
	}
	if _, err := I2C(board, bus, I2CConfig{Name: "sensor", Addresses: []int{0x48}, Safe: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := I2C(board, bus, I2CConfig{Name: "memory", ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	wantEffects(t, board, map[string]string{
		"roof_scan": "reads", "roof_read": "reads", "roof_transfer": "endangers",
		"sensor_scan": "reads", "sensor_read": "reads", "sensor_transfer": "changes",
		"memory_scan": "reads", "memory_read": "reads",
	})
	want(t, board, "sensor_scan", `{}`, `{"chips":[{"address":72,"hex":"0x48","driver":false}]}`)
	if all, err := call(t, board, "roof_scan", `{}`); err != nil || !strings.Contains(all, `"0x48"`) || strings.Contains(all, `"0x50"`) {
		t.Errorf("got %s, %v", all, err)
	}
	nothing := `{"bytes":[],"hex":""}`
	want(t, board, "roof_transfer", `{"address":72,"bytes":[0,25,128]}`, nothing)                               // a word
	want(t, board, "roof_transfer", `{"address":72,"bytes":[0],"count":2}`, `{"bytes":[25,128],"hex":"19 80"}`) // the same
	want(t, board, "roof_transfer", `{"address":72,"bytes":[5,7]}`, nothing)                                    // a byte
	want(t, board, "sensor_transfer", `{"address":72,"bytes":[5],"count":1}`, `{"bytes":[7],"hex":"07"}`)
	want(t, board, "roof_transfer", `{"address":72,"bytes":[16,1,2,3,4]}`, nothing) // a block
	want(t, board, "roof_transfer", `{"address":72,"bytes":[16],"count":4}`, `{"bytes":[1,2,3,4],"hex":"01 02 03 04"}`)
	want(t, board, "roof_transfer", `{"address":72,"bytes":[17]}`, nothing) // the register of the next read
	want(t, board, "roof_read", `{"address":72}`, `{"bytes":[2],"hex":"02"}`)
	wantRefused(t, board, "roof_read", `{"address":72,"count":2}`, "only SMBus")
	wantRefused(t, board, "roof_transfer", `{"address":72,"bytes":[1,2],"count":1}`, "only SMBus")
	wantRefused(t, board, "roof_transfer", `{"address":3,"bytes":[1]}`, "address")
	wantRefused(t, board, "roof_transfer", `{"address":72,"bytes":[256]}`, "bytes")
	wantRefused(t, board, "roof_transfer", `{"address":72,"bytes":[]}`, "bytes")
	wantRefused(t, board, "sensor_transfer", `{"address":73,"bytes":[1]}`, "address")
	wantFailed(t, board, "roof_read", `{"address":80}`, "0x50")

	// A chip with a driver is left to it.
	write(t, fmt.Sprintf("/sys/bus/i2c/devices/i2c-%d/new_device", bus), "lm75 0x48\n")
	defer write(t, fmt.Sprintf("/sys/bus/i2c/devices/i2c-%d/delete_device", bus), "0x48\n")
	want(t, board, "sensor_scan", `{}`, `{"chips":[{"address":72,"hex":"0x48","driver":true}]}`)
	wantRefused(t, board, "roof_read", `{"address":72}`, "driver")
	wantRefused(t, board, "roof_transfer", `{"address":72,"bytes":[0,0]}`, "driver")
}

// TestKernelPlainI2C transfers on a bus that does plain I2C, as most boards have. The bus is
// i2c-sim of internal/testenv/board, with a memory of 256 bytes.
func TestKernelPlainI2C(t *testing.T) {
	bus := busNamed(t, "plain I2C simulator", "i2c-sim")
	board := thing.New("board", "1")
	if _, err := I2C(board, bus, I2CConfig{Name: "bus"}); err != nil {
		t.Fatal(err)
	}
	want(t, board, "bus_scan", `{}`, `{"chips":[{"address":80,"hex":"0x50","driver":false}]}`)
	list := make([]string, maxWrite)
	for i := range list {
		list[i] = strconv.Itoa(i + 10)
	}
	list[0] = "4" // where the memory begins to write
	want(t, board, "bus_transfer", `{"address":80,"bytes":[`+strings.Join(list, ",")+`]}`, `{"bytes":[],"hex":""}`)
	want(t, board, "bus_transfer", `{"address":80,"bytes":[4],"count":3}`, `{"bytes":[11,12,13],"hex":"0b 0c 0d"}`)
	want(t, board, "bus_read", `{"address":80,"count":2}`, `{"bytes":[14,15],"hex":"0e 0f"}`)
	want(t, board, "bus_transfer", `{"address":80,"bytes":[200,1,2],"count":1}`, `{"bytes":[0],"hex":"00"}`)
	want(t, board, "bus_transfer", `{"address":80,"bytes":[200],"count":2}`, `{"bytes":[1,2],"hex":"01 02"}`)
	all, err := call(t, board, "bus_read", `{"address":80,"count":256}`)
	if err != nil || strings.Count(all, ",") != 256 {
		t.Errorf("got %s, %v", all, err)
	}
	wantRefused(t, board, "bus_read", `{"address":80,"count":257}`, "256")
	wantFailed(t, board, "bus_read", `{"address":81}`, "0x51")
	wantFailed(t, board, "bus_transfer", `{"address":81,"bytes":[1]}`, "0x51")
}
