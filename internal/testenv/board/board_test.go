//go:build linux

package board_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/board"
)

// TestBoard runs `ferrule board` and a gateway on a computer with simulated hardware. Everything
// is found, an agent reads and drives a line, a GPIO chip is plugged in, and one is unplugged
// in the middle of a call.
func TestBoard(t *testing.T) {
	kernel := os.Getenv("FERRULE_TEST_BOARD")
	if kernel == "" {
		t.Skip("set FERRULE_TEST_BOARD to the folder of a kernel; see README.md")
	}
	e := &env{t, board.Boot(t, kernel, map[string]string{"bin/ferrule": buildFerrule(t)}, "pwm-pca9685", "w1_therm", "w1-sim")}
	e.PlugChip("card", "relay-card", board.Line{Name: "RELAY1"}, board.Line{Name: "BUTTON"}, board.Line{}, board.Line{Name: "FAN", Hogged: true})
	bus := e.PlugThermometer("0x8019") // 25.5 °C
	e.PlugPWM(bus)
	e.PlugSensor("weather")
	e.PlugLED("beacon")
	e.until("the 1-Wire bus was searched", "cat /sys/class/hwmon/*/name", func(output string) bool { return strings.Contains(output, "w1_slave_temp") })
	e.Do("ferrule board --listen 127.0.0.1:8642 --poll 1s >/tmp/board.out 2>/dev/console &")
	e.Do("ferrule up --http board=http://127.0.0.1:8642 >/dev/console 2>&1 &")
	e.await("is online", func(d device) bool { return d.State == "online" })
	if out := e.Do("cat /tmp/board.out"); !strings.Contains(out, "Every program on this computer can use it") {
		t.Errorf("who can use it is not said: %s", out)
	}
	thermometer, pwm := "lm75_"+bus+"_48", "pwm_"+bus+"_40"
	t.Run("Found", func(t *testing.T) { e.at(t).found(thermometer, pwm) })
	t.Run("Recorded", func(t *testing.T) { e.at(t).recorded(thermometer) })
	t.Run("Agent", func(t *testing.T) { e.at(t).agent() })
	t.Run("Outputs", func(t *testing.T) { e.at(t).outputs(pwm) })
	t.Run("HotPlug", func(t *testing.T) { e.at(t).hotPlug() })
	t.Run("MidCall", func(t *testing.T) { e.at(t).midCall() })
	t.Run("End", func(t *testing.T) { e.at(t).end() })
}

// buildFerrule builds ferrule as a static binary.
func buildFerrule(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ferrule")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "github.com/ferrulehq/ferrule/cmd/ferrule")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building ferrule: %v\n%s", err, out)
	}
	return program
}

// env is a guest that runs a board and a gateway.
type env struct {
	t *testing.T
	*board.Guest
}

func (e *env) at(t *testing.T) *env { return &env{t, e.Guest.At(t)} }

// device is the board as the gateway lists it.
type device struct {
	State   string
	Waiting int
}

// await polls the gateway until its only device meets a condition.
func (e *env) await(what string, ok func(device) bool) {
	e.t.Helper()
	e.until("the board "+what, "ferrule devices --json", func(output string) bool {
		var devices []device
		return json.Unmarshal([]byte(output), &devices) == nil && len(devices) == 1 && ok(devices[0])
	})
}

// until repeats a command until its output meets a condition.
func (e *env) until(what, command string, ok func(output string) bool) {
	e.t.Helper()
	var output string
	for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if output, _ = e.Run(command); ok(output) {
			return
		}
	}
	e.t.Fatalf("timeout waiting until %s: %s", what, output)
}

// tools returns the names of the board's tools.
func (e *env) tools() (names []string) {
	e.t.Helper()
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal([]byte(e.Do("ferrule tools board --json")), &list); err != nil {
		e.t.Fatal(err)
	}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

// oneWire is the tool of the thermometer on 1-Wire.
const oneWire = "w1_slave_temp_28_0316a2794bff"

// found checks that everything is a tool, and that the kernel's own line is not offered.
func (e *env) found(thermometer, pwm string) {
	want := []string{
		"camera_vivid_000_vid_cap", "led_beacon", "led_beacon_set", thermometer, pwm, pwm + "_set", pwm + "_stop",
		"relay_card_lines", "relay_card_pulse", "relay_card_read", "relay_card_write", oneWire, "weather",
	}
	if got := e.tools(); !slices.Equal(got, want) {
		e.t.Errorf("tools:\n got %q\nwant %q", got, want)
	}
	list := e.Do("ferrule tools board --json")
	if !strings.Contains(list, `"RELAY1"`) || !strings.Contains(list, `"BUTTON"`) || strings.Contains(list, `"FAN"`) {
		e.t.Errorf("lines are not those that no driver uses: %s", list)
	}
	if out, code := e.Run("ferrule call board relay_card_write line=FAN value=true"); code != 3 {
		e.t.Errorf("the line of a driver: exit code %d, %s", code, out)
	}
}

// recorded waits until the sensors have signals with the right values.
func (e *env) recorded(thermometer string) {
	for signal, value := range map[string]string{
		thermometer + "_temp1_celsius": "25.5", oneWire + "_temp1_celsius": "23.125", "led_beacon_brightness": "0", "relay_card_lines_reserved": "0", "weather_steps": "47",
	} {
		e.until(signal+" is recorded", "ferrule history board "+signal+" --csv --resolution raw", func(output string) bool {
			return strings.Contains(output, ","+value+",") || strings.Contains(output, ","+value+"\n")
		})
	}
}

// agent calls tools as an MCP client does that starts `ferrule mcp`.
func (e *env) agent() {
	call := func(tool, arguments string) string {
		e.t.Helper()
		messages := []string{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"agent","version":"1"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"board__%s","arguments":%s}}`, tool, arguments),
		}
		e.Do("rm -f /tmp/in /tmp/out; mkfifo /tmp/in")
		e.Do("ferrule mcp </tmp/in >/tmp/out 2>/dev/console &")
		e.Do("exec 8>/tmp/in")
		for _, m := range messages {
			e.Do("echo '" + m + "' >&8")
		}
		var answer string
		e.until("the agent has an answer", "cat /tmp/out", func(output string) bool {
			for line := range strings.Lines(output) {
				if strings.Contains(line, `"id":2`) {
					answer = line
					return true
				}
			}
			return false
		})
		e.Do("exec 8>&-")
		return answer
	}
	value := e.LineFile("card", 0, "value")
	for _, level := range []string{"true", "false", "true"} {
		answer := call("relay_card_write", `{"line":"RELAY1","value":`+level+`}`)
		if want := map[string]string{"true": "1", "false": "0"}[level]; e.Do("cat "+value) != want || strings.Contains(answer, `"isError":true`) {
			e.t.Errorf("the line is %s, want %s: %s", e.Do("cat "+value), want, answer)
		}
	}
	for pull, level := range map[string]string{"pull-up": "true", "pull-down": "false"} {
		e.Do("echo " + pull + " >" + e.LineFile("card", 1, "pull"))
		if answer := call("relay_card_read", `{"line":"BUTTON"}`); !strings.Contains(answer, `"value":`+level) {
			e.t.Errorf("%s: %s", pull, answer)
		}
	}
	e.until("the lines are recorded", "ferrule history board relay_card_lines_level_RELAY1 --csv --resolution raw", func(output string) bool {
		return strings.Contains(output, ",1")
	})
}

// outputs sets the LED and the PWM chip, and takes a picture.
func (e *env) outputs(pwm string) {
	e.Do("ferrule call board " + pwm + "_set channel=0 hertz=200 percent=25")
	if got := e.Do("cd /sys/class/pwm/pwmchip*/pwm0 && cat duty_cycle enable | tr '\\n' ' '; echo"); got != "1250000 1" {
		e.t.Errorf("duty in nanoseconds and state are %s", got)
	}
	e.Do("ferrule call board " + pwm + "_stop channel=0")
	if got := e.Do("cat /sys/class/pwm/pwmchip*/pwm0/enable"); got != "0" {
		e.t.Errorf("the output is still on: %s", got)
	}
	e.Do("ferrule call board led_beacon_set brightness=200")
	if got := e.Do("cat /sys/class/leds/beacon/brightness"); got != "200" {
		e.t.Errorf("the LED has %s", got)
	}
	start := time.Now()
	e.Do("ferrule call board camera_vivid_000_vid_cap --timeout 1m -o /tmp/picture.jpg")
	e.t.Logf("a picture took %v", time.Since(start).Round(time.Millisecond))
	if head := e.Do("head -c 3 /tmp/picture.jpg | hexdump -e '3/1 \"%02x\"'; echo"); head != "ffd8ff" {
		e.t.Errorf("the picture begins with %q", head)
	}
}

// hotPlug plugs in a GPIO chip. Its tools are used after the owner has accepted them.
func (e *env) hotPlug() {
	e.PlugChip("extra", "valve-card", board.Line{Name: "VALVE1"}, board.Line{Name: "VALVE2"})
	e.await("offers the new tools", func(d device) bool { return d.Waiting == 4 })
	if tools := e.tools(); slices.Contains(tools, "valve_card_write") || !slices.Contains(tools, "relay_card_write") {
		e.t.Errorf("before the chip is accepted: %q", tools)
	}
	var report struct{ Offered string }
	diff := e.Do("ferrule diff board --json")
	if err := json.Unmarshal([]byte(diff), &report); err != nil || !strings.Contains(diff, "valve_card_write") {
		e.t.Fatalf("the owner does not see the chip: %v, %s", err, diff)
	}
	e.Do("ferrule accept board --kind " + report.Offered)
	e.Do("ferrule call board valve_card_write line=VALVE2 value=true")
	if got := e.Do("cat " + e.LineFile("extra", 1, "value")); got != "1" {
		e.t.Errorf("the new line is %s", got)
	}
	if got := e.Do("cat " + e.LineFile("card", 0, "value")); got != "1" {
		e.t.Errorf("a line of the other chip changed to %s", got)
	}
}

// midCall unplugs the chip while a line is set for a time: the call may have run, which is what
// the caller is told. When the chip is back, it is the same.
func (e *env) midCall() {
	value := e.LineFile("extra", 0, "value")
	e.Do("rm -f /tmp/code; { ferrule call board valve_card_pulse line=VALVE1 value=true milliseconds=5000 >/tmp/call 2>&1; echo $? >/tmp/code; } &")
	e.until("the line is set", "cat "+value, func(output string) bool { return strings.TrimSpace(output) == "1" })
	e.UnplugChip("extra")
	e.until("the call has ended", "cat /tmp/code", func(output string) bool { return strings.TrimSpace(output) != "" })
	said := e.Do("cat /tmp/call")
	if code := e.Do("cat /tmp/code"); code != "6" || !strings.Contains(said, "unplugged") || !strings.Contains(said, "VALVE1 was set high") {
		e.t.Errorf("exit code %s, want 6 (the action may have run): %s", code, said)
	}
	e.t.Log(said)
	e.until("the tools are gone", "ferrule tools board --json", func(output string) bool { return !strings.Contains(output, "valve_card") })
	if out, code := e.Run("ferrule call board valve_card_write line=VALVE1 value=true"); code != 3 {
		e.t.Errorf("a chip that is gone: exit code %d, want 3 (nothing ran): %s", code, out)
	}
	e.PlugChip("extra", "valve-card", board.Line{Name: "VALVE1"}, board.Line{Name: "VALVE2"})
	e.until("the tools are back", "ferrule tools board --json", func(output string) bool { return strings.Contains(output, "valve_card_write") })
	e.Do("ferrule call board valve_card_write line=VALVE1 value=true")
	e.await("waits for nothing", func(d device) bool { return d.Waiting == 0 })
}

// end stops the board. The gateway says that it is offline, and nothing ran.
func (e *env) end() {
	e.Do("kill $(pidof ferrule | tr ' ' '\\n' | while read p; do grep -qa board /proc/$p/cmdline && grep -qa listen /proc/$p/cmdline && echo $p; done)")
	if out, code := e.Run("ferrule call board relay_card_write line=RELAY1 value=false"); code != 4 {
		e.t.Errorf("exit code %d, want 4 (offline, nothing ran): %s", code, out)
	}
}
