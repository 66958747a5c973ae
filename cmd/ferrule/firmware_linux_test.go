package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	devicecheck "github.com/ferrulehq/ferrule/internal/ops/check"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// exampleOverlay returns an overlay that is beside an example for firmware authors, with
// texts replaced in pairs.
func exampleOverlay(t *testing.T, name string, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(uno.Examples(), name, name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(string(text), replace[i]) {
			t.Fatalf("%s.yaml does not contain %q", name, replace[i])
		}
	}
	return strings.NewReplacer(replace...).Replace(string(text))
}

// wasHigh reports whether an output has ever been high.
func wasHigh(board *uno.Board, pin string) bool {
	return slices.ContainsFunc(board.Edges(pin), func(e uno.Edge) bool { return e.High })
}

// TestFirmwareLease: an agent switches a relay of the example on, and it goes off when the
// lease of the overlay beside it ends, when the agent is gone, and by `ferrule stop`.
func TestFirmwareLease(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for name, end := range map[string]func(*mcpProcess){
		"time":  func(*mcpProcess) {},
		"agent": (*mcpProcess).kill,
	} {
		t.Run(name, func(t *testing.T) {
			length := map[string]string{"time": "2s", "agent": "10m"}[name]
			board := uno.Start(t, uno.Options{Sketch: "relay", Link: filepath.Join(t.TempDir(), "uno")})
			g := startGateway(t, nil, onSerial("relays", board, 0), withOverlay(t, exampleOverlay(t, "relay", "for: 10s", "for: "+length)))
			g.online("relays")
			agent := startMCP(t, g.data)
			begun := time.Now()
			agent.call("relays__gpio_write", map[string]any{"pin": 4, "value": true})
			if !wasHigh(board, "D4") { // its lease may be over already
				t.Fatal("the relay was not on")
			}
			end(agent)
			wait.For(t, "the relay is off", func() bool { return !board.Pin("D4") })
			if on := time.Since(begun); name == "time" && on < 2*time.Second {
				t.Errorf("the relay was on for %v, want 2s", on)
			}
			wait.For(t, "the journal has the end of the lease", func() bool {
				return slices.ContainsFunc(g.outcomes("relays", "gpio_write"), func(e ferrule.Entry) bool {
					return e.Principal == ferrule.Principal{Role: ferrule.Gateway, Name: "lease"}
				})
			})
		})
	}
	t.Run("stop", func(t *testing.T) {
		board := uno.Start(t, uno.Options{Sketch: "relay", Link: filepath.Join(t.TempDir(), "uno")})
		g := startGateway(t, nil, onSerial("relays", board, 0), withOverlay(t, exampleOverlay(t, "relay", "for: 10s", "for: 10m")))
		g.online("relays")
		agent := startMCP(t, g.data)
		for _, pin := range []int{4, 7} {
			agent.call("relays__gpio_write", map[string]any{"pin": pin, "value": true})
		}
		if !board.Pin("D4") || !board.Pin("D7") {
			t.Fatal("the relays are off")
		}
		if out := g.command("stop"); !strings.Contains(out, "relays: all_off was called") {
			t.Errorf("ferrule stop printed %s", out)
		}
		if board.Pin("D4") || board.Pin("D7") {
			t.Error("a relay is on after the stop")
		}
	})
}

// TestFirmwareStop: `ferrule stop` stops the motor of the example, which an agent moves, by
// the tool that the overlay beside it names.
func TestFirmwareStop(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	board := uno.Start(t, uno.Options{Sketch: "motor", Link: filepath.Join(t.TempDir(), "uno")})
	g := startGateway(t, nil, onSerial("motor", board, 0), withOverlay(t, exampleOverlay(t, "motor")))
	g.online("motor")
	agent := startMCP(t, g.data)
	agent.call("motor__move", map[string]any{"speed": -150, "seconds": 30})
	if board.PWM() != 150 {
		t.Fatalf("the motor has duty %d", board.PWM())
	}
	if out := g.command("stop"); !strings.Contains(out, "motor: stop was called") {
		t.Errorf("ferrule stop printed %s", out)
	}
	if board.PWM() != 0 || board.Pin("B1") {
		t.Errorf("after the stop the motor has duty %d", board.PWM())
	}
	if got := g.must("motor", "status", "{}", "moving"); got != false { // reads go on
		t.Errorf("moving is %v", got)
	}
	for args, code := range map[string]ferrule.Code{
		`{"speed":100,"seconds":1}`: ferrule.Denied,  // stopped
		`{"speed":300,"seconds":1}`: ferrule.Invalid, // the firmware's own range
	} {
		if _, err := g.call("motor", "move", args, ample); err == nil || ferrule.AsError(err).Code != code {
			t.Errorf("move %s: %v", args, err)
		}
	}
	g.command("resume")
	if _, err := g.call("motor", "move", `{"speed":250,"seconds":1}`, ample); err == nil || ferrule.AsError(err).Code != ferrule.Limited {
		t.Errorf("a move beyond the limit of the overlay: %v", err)
	}
	if board.PWM() != 0 {
		t.Errorf("the motor has duty %d", board.PWM())
	}
}

// TestFirstFirmware follows docs/tutorial/first-firmware.md: it writes the sketch, builds it,
// runs it in the emulator, and compares what the commands print.
func TestFirstFirmware(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	uno.Sketch(t, "relay", "") // skips if tools are missing
	page, err := os.ReadFile("../../docs/tutorial/first-firmware.md")
	if err != nil {
		t.Fatal(err)
	}
	// A copy of the folders that the page uses, and a home of its own.
	home := t.TempDir()
	for _, dir := range []string{"docs/firmware", "internal/testenv/uno"} {
		if err := os.CopyFS(filepath.Join(home, dir), os.DirFS(filepath.Join("../..", dir))); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Join(home, "docs/firmware"))
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	t.Setenv("XDG_DATA_HOME", filepath.Join(home, "data"))
	t.Setenv("FERRULE_LISTEN", "127.0.0.1:0")
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	port := filepath.Join(home, "uno")
	text := strings.ReplaceAll(string(page), "/tmp/uno", port)

	part := func(pattern string) []string {
		t.Helper()
		found := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("the page has nothing like %s", pattern)
		}
		return found[1:]
	}
	sketch := part("(?s)a file `(lamp/lamp.ino)`:\n\n```cpp\n(.*?)```")
	if err := os.MkdirAll("lamp", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sketch[0], []byte(sketch[1]), 0o644); err != nil {
		t.Fatal(err)
	}
	build := part("```sh\n(make [^\n]*)\n(./emulator [^\n]*)\n```")
	if out, err := exec.Command("sh", "-ec", build[0]).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build[0], err, out)
	}
	background := func(line string) {
		t.Helper()
		cmd := exec.Command("sh", "-ec", "exec "+line)
		stdin, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			stdin.Close()
			cmd.Process.Signal(os.Interrupt)
			cmd.Wait()
		})
	}
	show := func(script, want string) {
		t.Helper()
		out, _ := exec.Command("sh", "-c", script).CombinedOutput()
		if string(out) != want {
			t.Errorf("the page shows\n%sand its commands print\n%s", want, out)
		}
	}
	background(build[1] + " > printed")
	wait.For(t, "the emulator has a port", func() bool { _, err := os.Lstat(port); return err == nil })

	checked := part("(?s)```sh\n(ferrule check [^\n]*)\n```\n\n```text\n(.*?)```")
	var report string
	for range 3 { // times are those of the emulator, which a busy machine slows down
		out, err := exec.Command("sh", "-ec", checked[0]).CombinedOutput()
		if report = untimed(string(out)); err == nil {
			break
		}
	}
	findings := regexp.MustCompile(`\bmcpu\.[a-z-]+`).FindAllString(report, -1)
	if want := untimed(checked[1]); report != want && (figure.Measuring() || !isTiming(findings...)) {
		t.Errorf("the page shows\n%sand the check prints\n%s", want, report)
	}
	background(part("```sh\n(ferrule up [^\n]*)\n```")[0])
	wait.For(t, "the board is online", func() bool {
		out, _ := exec.Command("ferrule", "devices").Output()
		return strings.Contains(string(out), "online")
	})
	calls := part("(?s)```sh\n(ferrule tools [^`]*?)```\n\n```text\n(.*?)```\n\n")
	changes := func() int {
		printed, err := os.ReadFile("printed")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(printed), "PIN B5 ")
	}
	before := changes()
	show(calls[0], calls[1])
	wait.For(t, "the lamp has changed six times", func() bool { return changes() == before+6 })
}

// TestFirmwareSampling: without an overlay, the gateway learns from the example what is
// sampled, and records the samples and the threshold state.
func TestFirmwareSampling(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	board := uno.Start(t, uno.Options{Sketch: "sampling", Link: filepath.Join(t.TempDir(), "uno")})
	board.ADC(0, 5000)
	board.ADC(1, 2500)
	g := startGateway(t, nil, onSerial("light", board, 0))
	g.online("light")
	recorded := func(signal string, count int, value float64) {
		t.Helper()
		wait.For(t, signal+" is recorded", func() bool {
			tail, err := g.History.Tail(t.Context(), "light", signal, count)
			return err == nil && len(tail) == count && tail[count-1].Value == value
		})
	}
	recorded("light", 30, 1023) // more than the board keeps
	recorded("light_threshold", 1, 1)
	recorded("heat", 3, 511)
	board.ADC(0, 0)
	recorded("light_threshold", 1, -1)
	recorded("light", 1, 0)
}

// TestFirmwareLinux: the example for Linux is a device on TCP.
func TestFirmwareLinux(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("make", "-s", "-C", uno.Examples(), "OUT="+dir, dir+"/desk").CombinedOutput(); err != nil {
		if os.Getenv("CI") == "" {
			t.Skipf("needs make and gcc: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	led, thermometer := filepath.Join(dir, "class/leds/led0/brightness"), filepath.Join(dir, "class/thermal/thermal_zone0/temp")
	for _, file := range []string{led, thermometer} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(thermometer, []byte("42500\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	addr, err := freeAddr()
	if err != nil {
		t.Fatal(err)
	}
	desk := exec.Command(filepath.Join(dir, "desk"), addr)
	desk.Env = append(os.Environ(), "FOLDER="+dir)
	if err := desk.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		desk.Process.Kill()
		desk.Wait()
	})
	wait.For(t, "the device has the full score", func() bool { // it may not listen yet
		out, err := exec.Command("ferrule", "check", addr, "--json").Output()
		var report devicecheck.Report
		if json.Unmarshal(out, &report) != nil || err != nil {
			t.Logf("score %d: %v", report.Score, report.Findings)
		}
		return report.Score == 100
	})
	g := startGateway(t, map[string]string{"desk": addr})
	g.online("desk")
	g.must("desk", "gpio_write", `{"pin":2,"value":true}`, "value")
	if text, err := os.ReadFile(led); err != nil || string(text) != "1\n" {
		t.Errorf("the LED has %q, %v", text, err)
	}
	if got := g.must("desk", "read_temperature", "{}", "celsius"); got != 42.5 {
		t.Errorf("the temperature is %v", got)
	}
	if err := os.Remove(thermometer); err != nil {
		t.Fatal(err)
	}
	if _, err := g.call("desk", "read_temperature", "{}", ample); err == nil || ferrule.AsError(err).Code != ferrule.Failed {
		t.Errorf("without a thermometer: %v", err)
	}
}

// untimed replaces what differs between two checks of the same firmware.
func untimed(report string) string {
	return regexp.MustCompile(`\d+(\.\d+)?(µs|ms| s|s)\b`).ReplaceAllString(report, "TIME")
}

// timing are findings that a chip has which is emulated too slowly. TestSampling of the
// emulator measures samples by the clock of the chip.
var timing = []string{"mcpu.sampling-interval", "mcpu.slow-answers", "mcpu.slow-call", "mcpu.slow-line", "mcpu.slow-poll", "mcpu.slow-start"}

// isTiming reports whether there are findings, and all of them are about times.
func isTiming(findings ...string) bool {
	return len(findings) > 0 && !slices.ContainsFunc(findings, func(id string) bool { return !slices.Contains(timing, id) })
}

// firmwareBoot is how long a board takes to boot when its port is opened.
const firmwareBoot = 500 * time.Millisecond

// checkFirmware runs `ferrule check`. Findings about times are those of a busy machine, which
// emulates the chip too slowly, so they are only logged. In .ci/measure the score must be full,
// at the third time at last.
func checkFirmware(t *testing.T, board *uno.Board, target string, args ...string) devicecheck.Report {
	t.Helper()
	var report devicecheck.Report
	tries := 1
	if figure.Measuring() {
		tries = 3
	}
	for range tries {
		begun, cycles, resets := time.Now(), board.Cycle(), board.Resets()
		out, err := exec.Command("ferrule", append([]string{"check", target, "--json"}, args...)...).Output()
		report = devicecheck.Report{}
		if failed := json.Unmarshal(out, &report); failed != nil {
			t.Fatalf("ferrule check: %v, %v\n%s", err, failed, out)
		}
		if report.Score == 100 && err == nil {
			break
		}
		booted := time.Duration(board.Resets()-resets) * firmwareBoot // the chip does not run then
		pace := float64(board.Cycle()-cycles) / 16e6 / (time.Since(begun) - booted).Seconds()
		t.Logf("score %d with the chip at %.0f %% of its speed", report.Score, 100*pace)
		for _, f := range report.Findings {
			t.Logf("%s: %s", f.ID, f.Detail)
			if !isTiming(f.ID) {
				t.Errorf("%s has a %s: %s", report.Device, f.Severity, f.Title)
			}
		}
		if t.Failed() {
			return report
		}
	}
	figure.AtMost(t, "points that "+report.Device+" lacks", 100-report.Score, 0)
	return report
}

// tutorialSketch returns the sketch of docs/tutorial/first-firmware.md.
func tutorialSketch(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/tutorial/first-firmware.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```cpp\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no sketch")
	}
	return string(found[1])
}

// TestFirmwareCheck: each example has the full score, except for times in the gate, and no
// output changes unless it is asked for. The mistake that the tutorial names is found.
func TestFirmwareCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for sketch, pins := range map[string][]string{"sensor": {"B5"}, "relay": {"D4", "D5", "D6", "D7"}, "motor": {"B0", "B1"}, "sampling": {}} {
		t.Run(sketch, func(t *testing.T) {
			board := uno.Start(t, uno.Options{Sketch: sketch, BootTime: firmwareBoot, Link: filepath.Join(t.TempDir(), "uno")})
			report := checkFirmware(t, board, board.Path())
			t.Logf("%s: score %d in %.0f s", report.Device, report.Score, report.Took)
			for _, pin := range pins {
				if wasHigh(board, pin) {
					t.Errorf("output %s was set", pin)
				}
			}
			if sketch != "relay" {
				return
			}
			checkFirmware(t, board, board.Path(), "--actuate")
			for _, pin := range pins {
				if !wasHigh(board, pin) || board.Pin(pin) {
					t.Errorf("output %s was not set, or is on", pin)
				}
			}
		})
	}
	t.Run("delay", func(t *testing.T) {
		folder := filepath.Join(t.TempDir(), "lamp")
		sketch := strings.Replace(tutorialSketch(t), "  mcpu_loop(Serial);\n", "  mcpu_loop(Serial);\n  delay(50);\n", 1)
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "lamp.ino"), []byte(sketch), 0o644); err != nil {
			t.Fatal(err)
		}
		board := uno.Start(t, uno.Options{Sketch: folder, BootTime: firmwareBoot})
		out, err := exec.Command("ferrule", "check", board.Path()).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "mcpu.short-buffer") {
			t.Errorf("with delay(50) in loop(): %v\n%s", err, out)
		}
	})
}
