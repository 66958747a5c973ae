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
	full    float64 // 3.3 volts in that unit
	buffer  int     // the most samples that a pin can keep; who wants more keeps none
	limit   int     // how many get_pin_buffer tells if it is not told
}

var (
	esp32 = model{profile: "rich", line: 511, maxID: math.MaxInt32, steps: 4095, unit: "volts", full: 3.3, buffer: 300, limit: 300}
	avr   = model{profile: "low", line: 255, maxID: math.MaxInt16, steps: 1023, unit: "mv", full: 3300, buffer: 20, limit: 10}
)

// raw is what the converter makes of a voltage.
func (m model) raw(volts float64) int { return int(volts / 3.3 * m.steps) }

// sample has a pin sampled, as far as the board has room.
func (m model) sample(p *thing.Pin, size int) *thing.Pin {
	if size > m.buffer {
		size = 0
	}
	return p.Scaled(m.unit, m.full/m.steps).Sampled(500*time.Millisecond, size).Summary()
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
