package check

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
)

// Times of calls that read.
const (
	callWait = 4 * time.Second
	infoWait = 2 * time.Second
	slowCall = time.Second
)

// longAnswer is the size of an answer, in bytes, that fits no board.
const longAnswer = 64 << 10

// stopped judges a reply that did not come: the connection ended, or the board stopped
// answering. Then it connects again.
func (b *board) stopped(ctx context.Context, r reply) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r.outcome == closed:
		what := "instead of answering"
		if r.tail != "" {
			what = "in the middle of an answer"
		}
		b.find("mcpu.closed-connection", r.evidence(), "the board closed the connection %s", what)
		return b.recover(ctx)
	case r.outcome != silent:
		return nil
	}
	alive := b.ask(ctx, "get_info", "", infoWait)
	s, _ := b.stream.counts()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case alive.outcome == answered:
		b.find("mcpu.unanswered-call", r.evidence(), "a request was not answered within %v; the next get_info was", callWait)
		return nil
	case s.open > longAnswer:
		b.find("mcpu.endless-line", evidence{r.sent, string(s.tail)}, "%d bytes without a line end were received", s.open)
	default:
		b.find("mcpu.stopped-answering", r.evidence(), "the board answered before; now nothing comes, and the connection is still open")
	}
	return b.recover(ctx)
}

// read calls a tool that only reads, and judges everything about the answer but its value. It
// reports whether there is a result.
func (b *board) read(ctx context.Context, method, params string) (reply, bool, error) {
	b.called(method)
	r := b.ask(ctx, method, params, callWait)
	if err := b.stopped(ctx, r); err != nil {
		return r, false, err
	}
	switch {
	case r.outcome == mangled:
		b.mangled(r)
		return r, false, nil
	case r.outcome != answered:
		return r, false, nil
	}
	if r.took > slowCall+b.lineTime(len(r.raw)) {
		if b.slow++; b.slow > 1 { // once may be this computer
			b.find("mcpu.slow-call", r.evidence(), "the answer came %.1f s after the request", r.took.Seconds())
		}
	}
	if len(r.raw) > longAnswer {
		b.find("mcpu.long-answer", r.evidence(), "the answer of %s has %d bytes", method, len(r.raw))
		return r, false, nil
	}
	if r.err == nil {
		return r, true, nil
	}
	switch r.err.Code {
	case jsonrpc.CodeInvalidRequest:
		b.find("mcpu.lost-method", r.evidence(), "a correct request was rejected as invalid: %s", r.err)
	case jsonrpc.CodeMethodNotFound:
		b.find("mcpu.unknown-tool", r.evidence(), "%s is in the list, and the board does not know it", method)
	case jsonrpc.CodeInvalidParams:
		return r, false, nil // the caller knows whether the arguments are valid
	default:
		b.find("mcpu.failed-call", r.evidence(), "%s failed: %s", method, r.err)
	}
	return r, false, nil
}

// refusedCall records an answer that refuses arguments which follow from the list. read judges
// other errors.
func (b *board) refusedCall(r reply, tool string) {
	if r.outcome == answered && r.err != nil && r.err.Code == jsonrpc.CodeInvalidParams {
		b.find("mcpu.refused-call", r.evidence(), "%s refused arguments that follow from the list: %s", tool, r.err)
	}
}

// sampled is a pin with samples, and their count at a time.
type sampled struct {
	pin
	at    time.Time
	count int
}

// minCalls is how many calls are made at least: some faults are seen in one call of several.
const minCalls = 15

// calls calls the tools that only read.
func (b *board) calls(ctx context.Context) (string, error) {
	type call struct {
		tool, params string
		judge        func(r reply, p pin)
		pin          pin
	}
	var all []call
	add := func(tool string, p pin, judge func(reply, pin)) {
		if b.list.tool(tool) != nil {
			all = append(all, call{tool, fmt.Sprintf(`{"pin":%d}`, *p.Pin), judge, p})
		}
	}
	silentPins := !slices.ContainsFunc(b.list.pins, func(p pin) bool { return p.Capabilities != nil })
	for _, p := range b.list.pins {
		switch p.Type {
		case "digital_output", "digital_input":
			add("gpio_read", p, b.level)
		case "adc_input":
			add("adc_read", p, b.reading)
		}
		for _, c := range []struct {
			tool  string
			judge func(reply, pin)
		}{{"get_pin_summary", b.summary}, {"get_pin_buffer", b.buffer}, {"get_pin_events", b.events}} {
			switch {
			case p.Capabilities[strings.TrimPrefix(c.tool, "get_pin_")]:
				add(c.tool, p, c.judge)
			case silentPins && p.Type == "adc_input": // boards with little memory do not say which pins have samples
				p.unsure = true
				add(c.tool, p, c.judge)
			}
		}
	}
	for _, t := range b.list.tools {
		switch {
		case t.Polling > 0 && !isBuiltIn(t.Name):
			all = append(all, call{t.Name, "", func(r reply, _ pin) { b.polled(r, t) }, pin{}})
		case t.Name == "i2c_scan":
			all = append(all, call{t.Name, "", func(reply, pin) {}, pin{}})
		}
	}
	if len(all) == 0 {
		return "", errSkip("the board has no tool that is known to read only")
	}
	all = all[:min(len(all), 64)]
	made, unanswered := 0, 0
	for made < max(minCalls, len(all)) {
		c := all[made%len(all)]
		r, ok, err := b.read(ctx, c.tool, c.params)
		made++
		switch {
		case err != nil:
			return "", err
		case ok && made <= len(all):
			c.judge(r, c.pin)
		case r.outcome == silent:
			unanswered++
		case !c.pin.unsure:
			b.refusedCall(r, c.tool)
		}
		if unanswered > 1 || made >= 4 && b.found("mcpu.slow-call") {
			break // more of the same takes too long
		}
	}
	return fmt.Sprintf("%d calls of %d tools that only read", made, len(b.report.Called)), nil
}

// decode reads a result, and records if it is not one of the tool.
func (b *board) decode(r reply, v any, p pin) bool {
	if err := json.Unmarshal(r.result, v); err != nil {
		b.find("mcpu.wrong-result", r.evidence(), "the result for pin %d is invalid: %s", *p.Pin, jsonrpc.Reason(err))
		return false
	}
	return true
}

// level judges a result of gpio_read.
func (b *board) level(r reply, p pin) {
	var v struct {
		Pin   *int  `json:"pin"`
		Value *bool `json:"value"`
	}
	if b.decode(r, &v, p) && (v.Value == nil || v.Pin == nil || *v.Pin != *p.Pin) {
		b.find("mcpu.wrong-result", r.evidence(), "gpio_read of pin %d must return that pin and a value that is true or false", *p.Pin)
	}
}

// reading judges a result of adc_read.
func (b *board) reading(r reply, p pin) {
	var v struct {
		Pin   *int     `json:"pin"`
		Value *float64 `json:"value"`
		Volts *float64 `json:"volts"`
		MV    *float64 `json:"mv"`
	}
	if !b.decode(r, &v, p) {
		return
	}
	if v.Value == nil || v.Pin == nil || *v.Pin != *p.Pin || *v.Value < 0 {
		b.find("mcpu.wrong-result", r.evidence(), "adc_read of pin %d must return that pin and a value that is a number", *p.Pin)
	}
	if v.Volts == nil && v.MV == nil {
		b.find("mcpu.no-voltage", r.evidence(), "adc_read of pin %d returns neither volts nor mv", *p.Pin)
	}
}

// summary judges a result of get_pin_summary, and remembers the number of samples.
func (b *board) summary(r reply, p pin) {
	var v struct {
		Latest, Min, Max, Avg *float64
		Samples               *int
	}
	if !b.decode(r, &v, p) {
		return
	}
	none := v.Samples != nil && *v.Samples == 0 // the other members mean nothing
	if !none && (v.Latest == nil || v.Min == nil || v.Max == nil || v.Avg == nil || v.Samples == nil) {
		b.find("mcpu.wrong-result", r.evidence(), "get_pin_summary of pin %d must return latest, min, max, avg and samples", *p.Pin)
		return
	}
	const rounding = 0.01
	inside := none || *v.Avg >= *v.Min-rounding && *v.Avg <= *v.Max+rounding && *v.Latest >= *v.Min && *v.Latest <= *v.Max
	switch {
	case *v.Samples >= 65535:
		b.find("mcpu.saturated-summary", r.evidence(), "pin %d counts %d samples; avg is %g with max %g", *p.Pin, *v.Samples, *v.Avg, *v.Max)
		return
	case !inside:
		b.find("mcpu.wrong-summary", r.evidence(), "avg or latest of pin %d is not between min and max", *p.Pin)
	}
	if !slices.ContainsFunc(b.samples, func(s *sampled) bool { return *s.Pin == *p.Pin }) {
		b.samples = append(b.samples, &sampled{p, r.line.at, *v.Samples})
	}
}

// buffer judges a result of get_pin_buffer.
func (b *board) buffer(r reply, p pin) {
	var v struct {
		Available *bool     `json:"buffer_available"`
		Reason    string    `json:"reason"`
		Count     *int      `json:"count"`
		Values    []float64 `json:"values"`
	}
	switch {
	case !b.decode(r, &v, p):
	case v.Available != nil && !*v.Available && p.unsure:
	case v.Available != nil && !*v.Available:
		b.find("mcpu.no-buffer", r.evidence(), "pin %d lists a buffer, and get_pin_buffer says: %s", *p.Pin, cutText(v.Reason))
	case v.Count == nil || v.Values == nil || len(v.Values) > *v.Count:
		b.find("mcpu.wrong-result", r.evidence(), "get_pin_buffer of pin %d must return values, and count, which is how many samples the buffer holds", *p.Pin)
	case p.Sampling != nil && *v.Count > p.Sampling.BufferSize:
		b.find("mcpu.wrong-result", r.evidence(), "pin %d has a buffer of %d samples, and count is %d", *p.Pin, p.Sampling.BufferSize, *v.Count)
	}
}

// events judges a result of get_pin_events.
func (b *board) events(r reply, p pin) {
	var v struct {
		Events *[]struct {
			Type             string
			Value, Threshold *float64
		} `json:"events"`
	}
	if !b.decode(r, &v, p) {
		return
	}
	if v.Events == nil {
		b.find("mcpu.wrong-result", r.evidence(), "get_pin_events of pin %d must return events", *p.Pin)
		return
	}
	for _, e := range *v.Events {
		switch {
		case e.Value == nil || e.Threshold == nil || e.Type != "threshold_high" && e.Type != "threshold_low":
			b.find("mcpu.wrong-event", r.evidence(), "an event of pin %d must have value, threshold and the type threshold_high or threshold_low", *p.Pin)
		case (e.Type == "threshold_high") != (*e.Value >= *e.Threshold):
			b.find("mcpu.wrong-event", r.evidence(), "pin %d reports %s with value %g and threshold %g", *p.Pin, e.Type, *e.Value, *e.Threshold)
		}
	}
}

// polled judges a result of a tool that asks to be polled.
func (b *board) polled(r reply, t tool) {
	if r.took > t.Polling {
		b.find("mcpu.slow-poll", r.evidence(), "%s asks to be polled every %v, and its answer takes %v", t.Name, t.Polling, r.took.Round(time.Millisecond))
	}
	var v struct {
		Type     string    `json:"type"`
		Values   []float64 `json:"values"`
		Interval float64   `json:"sample_interval_ms"`
	}
	if json.Unmarshal(r.result, &v) != nil || v.Type != "buffer" {
		return
	}
	if v.Interval <= 0 {
		v.Interval = 1000
	}
	covered := time.Duration(float64(len(v.Values)) * v.Interval * float64(time.Millisecond))
	if covered < t.Polling {
		b.find("mcpu.polled-gap", r.evidence(), "%s returns %d samples, which cover %v, and asks to be polled every %v", t.Name, len(v.Values), covered, t.Polling)
	}
}
