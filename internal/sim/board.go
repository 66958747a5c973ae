package sim

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/thing"
)

// The pins of the simulated board.
const (
	pinButton      = 0
	PinLED         = 2
	pinServo       = 18
	pinTemperature = 34
	pinLight       = 35
)

// Board is a simulated board with an LED, a button, a temperature sensor, a light sensor and
// a servo. It is an ESP32 unless a Behavior says otherwise. Its readings depend on the time.
type Board struct {
	*thing.Device
	model  model
	begin  time.Time
	calls  int // number of tool calls, for behaviors
	sweeps atomic.Int32

	mu   sync.Mutex
	runs map[string]int
}

type angle struct {
	Angle int `json:"angle" jsonschema:"degrees, 0 to 180"`
}

type pulse struct {
	Token string `json:"token" jsonschema:"any text; the board counts how often it came"`
}

type pulsed struct {
	Token string `json:"token"`
	Runs  int    `json:"runs"`
}

type sweep struct {
	Milliseconds int `json:"milliseconds" jsonschema:"how long, at most 60000"`
}

type climate struct {
	Celsius float64 `json:"celsius"`
	Light   int     `json:"light"`
}

// NewBoard returns a board without a listener. Serve serves it on a connection.
func NewBoard() *Board { return newBoard(esp32) }

// newBoard returns a board whose clock starts now.
func newBoard(m model) *Board {
	b := &Board{Device: thing.New("sim-board", "1.0.0"), model: m, begin: time.Now(), runs: make(map[string]int)}
	b.Platform, b.Profile = "arduino", m.profile
	b.Output(PinLED, "led", "On-board LED", nil)
	b.Input(pinButton, "button", "Button, pressed for one second in ten", func() bool { return math.Mod(b.seconds(), 10) < 1 })
	b.PWM(pinServo, "servo", "Servo", nil)
	m.sample(b.Analog(pinTemperature, "temperature", "Temperature, 10 mV per degree", b.temperature), 20).
		Thresholds(float64(m.raw(0.16)), float64(m.raw(0.32)))
	m.sample(b.Analog(pinLight, "light", "Light, brighter is more", b.light), 120)
	thing.Tool(b.Device, "set_servo", "Turn the servo to an angle", b.setServo)
	thing.Tool(b.Device, "read_climate", "Read temperature and light", b.readClimate, thing.Polled(5*time.Second))
	thing.Tool(b.Device, "pulse", "Move the servo once and back; counts how often each token came", b.pulse)
	thing.Tool(b.Device, "sweep", "Move the servo back and forth for a while", b.sweep)
	if m.i2c {
		b.addI2C()
	}
	if m.full {
		b.fill()
	}
	return b
}

// fill adds pins and tools up to the limits of the firmware: 16 pins, and 24 tools in
// addition to the built-in ones.
func (b *Board) fill() {
	const text = "One of many, with a text as long as makers write them when nobody stops them, %d"
	for n := 6; n <= 16; n++ {
		b.Output(100+n, fmt.Sprintf("relay_%d", n), fmt.Sprintf(text, n), nil)
	}
	for n := 5; n <= 24; n++ {
		thing.Tool(b.Device, fmt.Sprintf("routine_%d", n), fmt.Sprintf(text, n),
			func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }, thing.NoSchema())
	}
}

func (b *Board) seconds() float64 {
	return math.Mod(time.Since(b.begin).Seconds(), 86400)
}

// celsius varies around 21 degrees with a period of ten minutes.
func (b *Board) celsius() float64 {
	return 21 + 3*math.Sin(b.seconds()*2*math.Pi/600)
}

func (b *Board) temperature() int { return b.model.raw(b.celsius() * 0.01) }

// light varies with a period of two minutes.
func (b *Board) light() int {
	return b.model.raw(1.6 + 1.45*math.Sin(b.seconds()*2*math.Pi/120))
}

func (b *Board) setServo(_ context.Context, in angle) (angle, error) {
	if in.Angle < 0 || in.Angle > 180 {
		return angle{}, &thing.RefusedError{Reason: "angle must be within 0 and 180"}
	}
	return in, nil
}

func (b *Board) readClimate(context.Context, struct{}) (climate, error) {
	return climate{math.Round(b.celsius()*10) / 10, b.light()}, nil
}

// pulseTime is how long a pulse takes.
const pulseTime = time.Millisecond

func (b *Board) pulse(_ context.Context, in pulse) (pulsed, error) {
	b.mu.Lock()
	b.runs[in.Token]++
	runs := b.runs[in.Token]
	b.mu.Unlock()
	time.Sleep(pulseTime)
	return pulsed{in.Token, runs}, nil
}

// Runs returns how often pulse ran with each token.
func (b *Board) Runs() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.runs)
}

func (b *Board) sweep(ctx context.Context, in sweep) (sweep, error) {
	if in.Milliseconds < 0 || in.Milliseconds > 60000 {
		return sweep{}, &thing.RefusedError{Reason: "milliseconds must be within 0 and 60000"}
	}
	b.sweeps.Add(1)
	defer b.sweeps.Add(-1)
	return in, sleep(ctx, time.Duration(in.Milliseconds)*time.Millisecond)
}

// Sweeping reports whether the servo moves back and forth.
func (b *Board) Sweeping() bool { return b.sweeps.Load() > 0 }
