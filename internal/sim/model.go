package sim

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/ferrulehq/ferrule/thing"
)

// model is what firmware makes of a sort of board.
type model struct {
	profile string  // what get_info says of its memory
	line    int     // bytes of the longest request that is read as one
	maxID   int     // the largest id that it takes
	steps   float64 // of its converter, for 3.3 volts
	unit    string  // what adc_read tells a voltage in as well; empty for nothing
	volts   float64 // 3.3 volts in that unit
	buffer  int     // the most samples that a pin can keep; zero if it takes none
	limit   int     // how many get_pin_buffer tells if it is not told
	i2c     bool    // it has the I2C tools
	full    bool    // it has as many pins and tools as fit
}

var (
	esp32   = model{profile: "rich", line: 511, maxID: math.MaxInt32, steps: 4095, unit: "volts", volts: 3.3, buffer: 300, limit: 300}
	avr     = model{profile: "low", line: 255, maxID: math.MaxInt16, steps: 1023, unit: "mv", volts: 3300, buffer: 20, limit: 10}
	esp8266 = model{profile: "conservative", line: 255, maxID: math.MaxInt32, steps: 1023, buffer: 30, limit: 30}

	// fullBoard is an ESP32 with all that its firmware has room for.
	fullBoard = model{profile: "rich", line: 511, maxID: math.MaxInt32, steps: 4095, unit: "volts", volts: 3.3, buffer: 300, limit: 300, full: true}
	// oldFirmware is an ESP32 with firmware 1.0.
	oldFirmware = model{line: 64 << 10, maxID: math.MaxInt32, steps: 4095, unit: "volts", volts: 3.3, i2c: true}
)

// raw is what the converter makes of a voltage.
func (m model) raw(volts float64) int { return int(volts / 3.3 * m.steps) }

// sample has a pin sampled, if the board does that. A buffer that is too large
// for it is dropped without a word.
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

// take reads a request as firmware does: of a pin's number it keeps eight bits,
// so that 258 acts on 2, and get_pin_buffer has a limit of its own.
func (m model) take(line []byte) []byte {
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
