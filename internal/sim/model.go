package sim

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/ferrulehq/ferrule/thing"
)

// model describes a kind of board.
type model struct {
	profile string        // the memory profile in get_info
	line    int           // length of the longest request
	maxID   int           // the largest request ID
	steps   float64       // resolution of the converter, for 3.3 volts
	unit    string        // of the voltage in adc_read; empty for none
	volts   float64       // 3.3 volts in that unit
	buffer  int           // maximum samples per pin; zero if it takes none
	limit   int           // default limit of get_pin_buffer
	silence time.Duration // after which a part of a line is a request; zero for never
	i2c     bool          // has the I2C tools
	full    bool          // has as many pins and tools as fit
}

var (
	esp32   = model{profile: "rich", line: 511, maxID: math.MaxInt32, steps: 4095, unit: "volts", volts: 3.3, buffer: 300, limit: 300}
	avr     = model{profile: "low", line: 255, maxID: math.MaxInt16, steps: 1023, unit: "mv", volts: 3300, buffer: 20, limit: 10}
	esp8266 = model{profile: "conservative", line: 255, maxID: math.MaxInt32, steps: 1023, buffer: 30, limit: 30}

	// fullBoard is an ESP32 with the maximum of pins and tools.
	fullBoard = model{profile: "rich", line: 511, maxID: math.MaxInt32, steps: 4095, unit: "volts", volts: 3.3, buffer: 300, limit: 300, full: true}
	// oldFirmware is an ESP32 with firmware 1.0.
	oldFirmware = model{line: 64 << 10, maxID: math.MaxInt32, steps: 4095, unit: "volts", volts: 3.3, silence: time.Second, i2c: true}
)

// raw converts a voltage to a reading of the converter.
func (m model) raw(volts float64) int { return int(volts / 3.3 * m.steps) }

// sample enables sampling of a pin, if the board supports it. A buffer that is too large is
// dropped silently, as by the firmware.
func (m model) sample(p *thing.Pin, size int) *thing.Pin {
	p.Scaled(m.unit, m.volts/m.steps)
	switch {
	case m.buffer == 0:
		return p
	case size > m.buffer:
		size = 0
	}
	return p.Sampled(500*time.Millisecond, size).Summary()
}

// parse reads a request as firmware does: it keeps eight bits of a pin number, so that 258
// means 2, and adds the default limit of get_pin_buffer.
func (m model) parse(line []byte) []byte {
	var req, params map[string]json.RawMessage
	if json.Unmarshal(line, &req) != nil || json.Unmarshal(req["params"], &params) != nil || params == nil {
		return line
	}
	if pin, err := strconv.ParseInt(string(params["pin"]), 10, 32); err == nil {
		params["pin"] = strconv.AppendUint(nil, uint64(uint8(pin)), 10)
	}
	if params["limit"] == nil && string(req["method"]) == `"get_pin_buffer"` {
		params["limit"] = strconv.AppendInt(nil, int64(m.limit), 10)
	}
	var err error
	if req["params"], err = json.Marshal(params); err != nil {
		return line
	}
	taken, err := json.Marshal(req)
	if err != nil {
		return line
	}
	return taken
}
