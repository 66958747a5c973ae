package thing

import (
	"encoding/json"
	"slices"
)

// builtins are the methods of every device. Those about samples are listed only if a pin
// offers them.
var builtins = map[string]func(*Device, arguments) (any, error){
	"get_info":        getInfo,
	"list_tools":      listTools,
	"gpio_write":      gpioWrite,
	"gpio_read":       gpioRead,
	"pwm_write":       pwmWrite,
	"adc_read":        adcRead,
	"get_pin_summary": getPinSummary,
	"get_pin_buffer":  getPinBuffer,
	"get_pin_events":  getPinEvents,
}

var (
	errBadParams = &rpcError{badParams, "Bad params"}
	errWrongPin  = &rpcError{badParams, "Wrong pin type"}
	errNoPin     = &rpcError{badParams, "Pin not found"}
)

type infoResult struct {
	Device   string `json:"device"`
	Version  string `json:"version"`
	Platform string `json:"platform"`
	PinCount int    `json:"pin_count"`
	Profile  string `json:"memory_profile,omitempty"`
}

func getInfo(d *Device, _ arguments) (any, error) {
	return infoResult{d.name, d.version, d.Platform, len(d.pins), d.Profile}, nil
}

type listResult struct {
	Device  string       `json:"device"`
	Version string       `json:"version"`
	Tools   []listedTool `json:"tools"`
	Pins    []listedPin  `json:"pins"`
}

type listedTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"`
	Polling     *polling        `json:"polling,omitempty"`
}

type polling struct {
	Enabled    bool  `json:"enabled"`
	IntervalMS int64 `json:"interval_ms"`
}

type listedPin struct {
	Pin          int           `json:"pin"`
	Name         string        `json:"name"`
	Type         string        `json:"type"`
	Description  string        `json:"description"`
	Capabilities *capabilities `json:"capabilities,omitempty"`
	Sampling     *sampling     `json:"sampling,omitempty"`
}

type capabilities struct {
	Summary bool `json:"summary"`
	Buffer  bool `json:"buffer"`
	Events  bool `json:"events"`
}

type sampling struct {
	IntervalMS int64 `json:"interval_ms"`
	BufferSize int   `json:"buffer_size"`
}

// pinTool returns the listing of a built-in method with a pin and further arguments.
func pinTool(name, text, more, required string) listedTool {
	return listedTool{Name: name, Description: text, InputSchema: json.RawMessage(
		`{"type":"object","properties":{"pin":{"type":"integer","description":"Pin number"}` + more + `},"required":["pin"` + required + `]}`)}
}

func listTools(d *Device, _ arguments) (any, error) {
	list := listResult{Device: d.name, Version: d.version, Pins: []listedPin{}, Tools: []listedTool{
		pinTool("gpio_write", "Set a digital output high or low", `,"value":{"type":"boolean","description":"true is high"}`, `,"value"`),
		pinTool("gpio_read", "Read a digital pin", "", ""),
		pinTool("pwm_write", "Set the duty of a PWM output", `,"duty":{"type":"integer","description":"0 to 255"}`, `,"duty"`),
		pinTool("adc_read", "Measure an analog input", "", ""),
		{Name: "get_info", Description: "Get information about the device", InputSchema: json.RawMessage(`{"type":"object","properties":{},"required":[]}`)},
	}}
	var offered capabilities
	for _, p := range d.pins {
		listed := listedPin{Pin: p.number, Name: p.name, Type: p.typ, Description: p.text}
		if p.interval > 0 {
			c := capabilities{p.summary, p.size > 0, p.low != nil}
			listed.Capabilities = &c
			listed.Sampling = &sampling{p.interval.Milliseconds(), p.size}
			offered = capabilities{offered.Summary || c.Summary, offered.Buffer || c.Buffer, offered.Events || c.Events}
		}
		list.Pins = append(list.Pins, listed)
	}
	if offered.Summary {
		list.Tools = append(list.Tools, pinTool("get_pin_summary", "Get minimum, maximum and average of a pin's samples", "", ""))
	}
	if offered.Buffer {
		list.Tools = append(list.Tools, pinTool("get_pin_buffer", "Get a pin's samples, the oldest first", `,"limit":{"type":"integer","description":"How many"}`, ""))
	}
	if offered.Events {
		list.Tools = append(list.Tools, pinTool("get_pin_events", "Check a pin's latest sample against its thresholds", "", ""))
	}
	for _, t := range d.tools {
		listed := listedTool{Name: t.Name, Description: t.Text, InputSchema: t.Schema}
		if t.Poll > 0 {
			listed.Polling = &polling{true, t.Poll.Milliseconds()}
		}
		list.Tools = append(list.Tools, listed)
	}
	return list, nil
}

// pinOfType returns the pin of the arguments, if it has one of the types.
func (d *Device) pinOfType(a arguments, types ...string) (*Pin, error) {
	n, err := a.number()
	if err != nil {
		return nil, err
	}
	if p := d.pinAt(n); p != nil && slices.Contains(types, p.typ) {
		return p, nil
	}
	return nil, errWrongPin
}

type digitalResult struct {
	Pin   int    `json:"pin"`
	Name  string `json:"name"`
	Value bool   `json:"value"`
}

func gpioWrite(d *Device, a arguments) (any, error) {
	if a.Value == nil {
		return nil, errBadParams
	}
	p, err := d.pinOfType(a, digitalOutput)
	if err != nil {
		return nil, err
	}
	level := 0
	if *a.Value {
		level = 1
	}
	if err := p.write(level); err != nil {
		return nil, err
	}
	p.level = level
	return digitalResult{p.number, p.name, *a.Value}, nil
}

func gpioRead(d *Device, a arguments) (any, error) {
	p, err := d.pinOfType(a, digitalOutput, digitalInput)
	if err != nil {
		return nil, err
	}
	level := p.level
	if p.read != nil {
		level = p.read()
	}
	return digitalResult{p.number, p.name, level != 0}, nil
}

type pwmResult struct {
	Pin  int    `json:"pin"`
	Name string `json:"name"`
	Duty int    `json:"duty"`
}

func pwmWrite(d *Device, a arguments) (any, error) {
	if a.Duty == nil {
		return nil, errBadParams
	}
	p, err := d.pinOfType(a, pwmOutput)
	if err != nil {
		return nil, err
	}
	if err := p.write(*a.Duty); err != nil {
		return nil, err
	}
	p.level = *a.Duty
	return pwmResult{p.number, p.name, *a.Duty}, nil
}

func adcRead(d *Device, a arguments) (any, error) {
	p, err := d.pinOfType(a, adcInput)
	if err != nil {
		return nil, err
	}
	v := p.read()
	result := map[string]any{"pin": p.number, "name": p.name, "value": v}
	if p.unit != "" {
		result[p.unit] = float64(v) * p.scale
	}
	return result, nil
}

// sampledPin returns a pin by its number or name.
func (d *Device) sampledPin(a arguments) (*Pin, error) {
	var p *Pin
	if name, ok := a.Pin.(string); ok {
		p = d.pinNamed(name)
	} else if n, err := a.number(); err == nil {
		p = d.pinAt(n)
	}
	if p == nil {
		return nil, errNoPin
	}
	return p, nil
}

type summaryResult struct {
	Pin     int     `json:"pin"`
	Name    string  `json:"name"`
	Latest  float64 `json:"latest"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Avg     float64 `json:"avg"`
	Samples int     `json:"samples"`
}

func getPinSummary(d *Device, a arguments) (any, error) {
	p, err := d.sampledPin(a)
	if err != nil {
		return nil, err
	}
	if !p.summary {
		return nil, &rpcError{badParams, "Summary not enabled for this pin"}
	}
	avg := 0.0
	if p.samples > 0 {
		avg = p.sum / float64(p.samples)
	}
	return summaryResult{p.number, p.name, p.latest, p.min, p.max, avg, p.samples}, nil
}

type bufferResult struct {
	Pin    string    `json:"pin"`
	Count  int       `json:"count"`
	Values []float64 `json:"values"`
}

type noBufferResult struct {
	Pin       string `json:"pin"`
	Available bool   `json:"buffer_available"`
	Reason    string `json:"reason"`
}

// getPinBuffer does not empty the buffer, and a limit keeps the oldest samples. Count is how
// many are in the buffer, also if the limit is lower. A missing buffer is not an error.
func getPinBuffer(d *Device, a arguments) (any, error) {
	p, err := d.sampledPin(a)
	if err != nil {
		return nil, err
	}
	if p.size == 0 {
		return noBufferResult{Pin: p.name, Reason: "Buffer not enabled for this pin"}, nil
	}
	limit := p.size
	if a.Limit != nil && *a.Limit >= 0 {
		limit = *a.Limit
	}
	return bufferResult{p.name, len(p.ring), p.oldest(limit)}, nil
}

type eventsResult struct {
	Pin    string  `json:"pin"`
	Events []event `json:"events"`
}

type event struct {
	Type      string  `json:"type"`
	Value     float64 `json:"value"`
	Threshold float64 `json:"threshold"`
}

// getPinEvents compares the latest sample with the thresholds at the time of the call.
func getPinEvents(d *Device, a arguments) (any, error) {
	p, err := d.sampledPin(a)
	if err != nil {
		return nil, err
	}
	events := []event{}
	if p.samples > 0 && p.high != nil && p.latest > *p.high {
		events = append(events, event{"threshold_high", p.latest, *p.high})
	}
	if p.samples > 0 && p.low != nil && p.latest < *p.low {
		events = append(events, event{"threshold_low", p.latest, *p.low})
	}
	return eventsResult{p.name, events}, nil
}
