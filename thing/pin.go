package thing

import (
	"fmt"
	"time"
)

// The types of pins.
const (
	digitalOutput = "digital_output"
	digitalInput  = "digital_input"
	pwmOutput     = "pwm_output"
	adcInput      = "adc_input"
)

// Pin is a pin of a device. Its methods add to the declaration and return the pin. Its
// functions are called one at a time and must not use the Device.
type Pin struct {
	number     int
	name, text string
	typ        string

	write func(int) error // nil for an input
	read  func() int      // nil for an output
	level int             // what was written last

	unit  string // of the scaled value in adc_read
	scale float64

	interval  time.Duration // zero if it is not sampled
	due       time.Time
	ring      []float64 // the samples; the oldest is at start once it is full
	start     int
	size      int // of the ring; zero for none
	summary   bool
	low, high *float64
	latest    float64
	min       float64
	max       float64
	sum       float64
	samples   int
}

func (d *Device) pin(p *Pin) *Pin {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pinAt(p.number) != nil {
		panic(fmt.Sprintf("thing: pin %d is declared twice", p.number))
	}
	d.pins = append(d.pins, p)
	return p
}

func (d *Device) pinAt(number int) *Pin {
	for _, p := range d.pins {
		if p.number == number {
			return p
		}
	}
	return nil
}

func (d *Device) pinNamed(name string) *Pin {
	for _, p := range d.pins {
		if p.name == name {
			return p
		}
	}
	return nil
}

// Output declares a digital output. Set is called with each new level; it may be nil.
func (d *Device) Output(number int, name, text string, set func(high bool) error) *Pin {
	p := &Pin{number: number, name: name, text: text, typ: digitalOutput}
	p.write = func(level int) error {
		if set == nil {
			return nil
		}
		return set(level != 0)
	}
	return d.pin(p)
}

// Input declares a digital input.
func (d *Device) Input(number int, name, text string, get func() bool) *Pin {
	return d.pin(&Pin{number: number, name: name, text: text, typ: digitalInput, read: func() int {
		if get() {
			return 1
		}
		return 0
	}})
}

// PWM declares a PWM output. Set is called with each new duty, from 0 to 255; it may be nil.
func (d *Device) PWM(number int, name, text string, set func(duty int) error) *Pin {
	p := &Pin{number: number, name: name, text: text, typ: pwmOutput}
	p.write = func(duty int) error {
		if set == nil {
			return nil
		}
		return set(duty)
	}
	return d.pin(p)
}

// Analog declares an analog input. Get returns the raw reading.
func (d *Device) Analog(number int, name, text string, get func() int) *Pin {
	return d.pin(&Pin{number: number, name: name, text: text, typ: adcInput, read: get})
}

// Scaled adds a scaled value to the readings of an analog input, such as volts.
func (p *Pin) Scaled(unit string, factor float64) *Pin {
	p.unit, p.scale = unit, factor
	return p
}

// Sampled reads an input at an interval, and keeps the last size samples in a ring buffer.
// Size may be 0. It panics if the pin is an output or the interval is below a millisecond.
func (p *Pin) Sampled(interval time.Duration, size int) *Pin {
	if p.read == nil || interval < time.Millisecond || size < 0 {
		panic(fmt.Sprintf("thing: pin %d cannot be sampled every %v with a buffer of %d", p.number, interval, size))
	}
	p.interval, p.size = interval, size
	return p
}

// Summary adds minimum, maximum and average of all samples.
func (p *Pin) Summary() *Pin {
	p.summary = true
	return p
}

// Thresholds compares the latest sample with a lower and an upper threshold.
func (p *Pin) Thresholds(low, high float64) *Pin {
	p.low, p.high = &low, &high
	return p
}

// Reset sets every output low, as firmware does at its start.
func (d *Device) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.pins {
		if p.write != nil {
			p.level = 0
			p.write(0)
		}
	}
}

// Level returns what was last written to an output, or 0.
func (d *Device) Level(number int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.pinAt(number); p != nil {
		return p.level
	}
	return 0
}

// tick takes a sample if it is due, and returns when the next one is.
func (p *Pin) tick(now time.Time) (due time.Time) {
	if p.due.IsZero() {
		p.due = now
	}
	if now.Before(p.due) {
		return p.due
	}
	p.due = now.Add(p.interval - now.Sub(p.due)%p.interval) // missed samples are skipped
	p.keep(float64(p.read()))
	return p.due
}

func (p *Pin) keep(v float64) {
	if p.samples == 0 || v < p.min {
		p.min = v
	}
	if p.samples == 0 || v > p.max {
		p.max = v
	}
	p.latest = v
	p.sum += v
	p.samples++
	switch {
	case p.size == 0:
	case len(p.ring) < p.size:
		p.ring = append(p.ring, v)
	default:
		p.ring[p.start] = v
		p.start = (p.start + 1) % p.size
	}
}

// oldest returns up to n samples, the oldest first.
func (p *Pin) oldest(n int) []float64 {
	values := make([]float64, 0, min(n, len(p.ring)))
	for i := range cap(values) {
		values = append(values, p.ring[(p.start+i)%len(p.ring)])
	}
	return values
}
