package sim_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/transcript"
	"github.com/ferrulehq/ferrule/thing"
)

// The request that shows at the end of a transcript that the board said nothing more.
const (
	probe       = `{"jsonrpc":"2.0","id":32000,"method":"none_such"}`
	probeAnswer = `{"jsonrpc":"2.0","id":32000,"error":{"code":-32601,"message":"Method not found"}}`
)

// TestMCPUPage runs the transcripts of the page about MCP/U with a device of the SDK and with
// the simulated board. Package uno runs those of the emulated Uno.
func TestMCPUPage(t *testing.T) {
	all := transcript.Read(t, "../../docs/reference/mcpu.md", "mcpu")
	ran := make(map[string]int)
	for _, s := range all {
		for _, target := range s.Targets {
			if ran[target]++; target == "uno" {
				continue
			}
			t.Run(fmt.Sprintf("line %d with %s", s.Line, target), func(t *testing.T) {
				name, misbehave, _ := strings.Cut(target, "/")
				switch name {
				case "thing":
					synctest.Test(t, func(t *testing.T) { withThing(t, s) })
				case "sim":
					fleet := start(t, sim.Config{Addr: "127.0.0.1:0", Count: 1, Misbehave: misbehave})
					s.Run(t, dial(t, fleet.Addrs()[0]), nil, probe, probeAnswer)
				default:
					t.Errorf("unknown device %s", target)
				}
			})
		}
	}
	if ran["thing"] < 10 || ran["sim"] < 10 || ran["uno"] < 5 {
		t.Errorf("transcripts by device: %v", ran)
	}
}

// TestListSizes checks the sizes of lists on the page, to which it rounds them.
func TestListSizes(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/mcpu.md")
	if err != nil {
		t.Fatal(err)
	}
	for misbehave, row := range map[string]string{"long-list": "list of an ESP32 with 16 pins and 24 tools", "no-schema": "list of a small AVR board"} {
		fleet := start(t, sim.Config{Addr: "127.0.0.1:0", Count: 1, Misbehave: misbehave})
		size := len(dial(t, fleet.Addrs()[0]).ask(`{"jsonrpc":"2.0","id":2,"method":"list_tools"}`)) + len("\r\n")
		size = (size + 50) / 100 * 100
		seconds := func(baud int) string { return strconv.FormatFloat(float64(size)*10/float64(baud), 'g', 2, 64) }
		want := fmt.Sprintf("| %s | %d,%03d | %s s | %s s |", row, size/1000, size%1000, seconds(115200), seconds(9600))
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not say %s", want)
		}
	}
}

// withThing runs a transcript with a board like the simulated one, over a pipe.
func withThing(t *testing.T, s transcript.Transcript) {
	board := thing.New("sim-board", "1.0.0")
	board.Platform, board.Profile = "arduino", "rich"
	board.Output(2, "led", "On-board LED", nil)
	board.Input(0, "button", "Button, pressed for one second in ten", func() bool { return false })
	board.PWM(18, "servo", "Servo", nil)
	samples := []int{260, 261, 263, 262, 265}
	taken := 0
	board.Analog(34, "temperature", "Temperature, 10 mV per degree", func() int { taken++; return samples[(taken-1)%len(samples)] }).
		Scaled("volts", 3.3/4095).Sampled(500*time.Millisecond, 20).Summary().Thresholds(198, 397)
	board.Analog(35, "light", "Light, brighter is more", func() int { return 1985 }).
		Scaled("volts", 3.3/4095).Sampled(500*time.Millisecond, 120).Summary()
	type angle struct {
		Angle int `json:"angle" jsonschema:"degrees, 0 to 180"`
	}
	thing.Tool(board, "set_servo", "Turn the servo to an angle", func(_ context.Context, in angle) (angle, error) {
		if in.Angle < 0 || in.Angle > 180 {
			return angle{}, &thing.RefusedError{Reason: "angle must be within 0 and 180"}
		}
		return in, nil
	})
	thing.Tool(board, "read_climate", "Read temperature and light", func(context.Context, struct{}) (map[string]float64, error) {
		return map[string]float64{"celsius": 21, "light": 1985}, nil
	}, thing.Polled(5*time.Second))
	for range samples[1:] { // Serve takes the last one
		board.Tick(time.Now())
		time.Sleep(500 * time.Millisecond)
	}
	near, far := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- board.Serve(t.Context(), far) }()
	s.Run(t, near, nil, probe, probeAnswer)
	near.Close()
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
