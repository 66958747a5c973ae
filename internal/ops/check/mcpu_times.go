package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// speed measures how fast the board answers.
func (b *board) speed(ctx context.Context) (string, error) {
	var times []time.Duration
	for began := time.Now(); len(times) < 20 && (len(times) < 5 || time.Since(began) < 2*time.Second); {
		r := b.ask(ctx, "get_info", "", infoWait)
		if err := b.stopped(ctx, r); err != nil {
			return "", err
		}
		if r.outcome != answered {
			return "", errSkip("a get_info was not answered")
		}
		times = append(times, r.took)
	}
	slices.Sort(times)
	median := times[len(times)/2]
	if limit := 300*time.Millisecond + b.lineTime(infoSize); median > limit {
		b.find("mcpu.slow-answers", evidence{}, "half of the answers to get_info take longer than %v; the limit is %v", median.Round(time.Millisecond), limit.Round(time.Millisecond))
	}
	list, err := b.listSpeed(ctx)
	return fmt.Sprintf("get_info in %v%s", median.Round(10*time.Microsecond), list), err
}

// listSpeed measures how long the list takes on the line. The faster one of two counts: this
// computer may be busy.
func (b *board) listSpeed(ctx context.Context) (string, error) {
	var r reply
	var took time.Duration
	const maxList = 2500 * time.Millisecond
	var slow, small bool
	for n := range 2 {
		got := b.listTools(ctx)
		if err := b.stopped(ctx, got); err != nil || got.outcome != answered {
			return "", err
		}
		if at := got.line.at.Sub(got.line.first); n == 0 || at < took {
			r, took = got, at
		}
		rate := float64(len(r.raw)) / max(took.Seconds(), 0.001)
		slow = took > maxList || b.baud == 0 && took > 250*time.Millisecond && rate < 8<<10
		small = b.baud == 0 && r.line.reads > 8 && len(r.raw)/r.line.reads < 128
		if !slow && !small {
			break
		}
	}
	switch {
	case slow && b.baud > 0:
		b.find("mcpu.slow-line", evidence{}, "the list of %d bytes takes %.1f s at %d baud", len(r.raw), took.Seconds(), b.baud)
	case slow:
		b.find("mcpu.slow-line", evidence{}, "the list of %d bytes takes %.1f s", len(r.raw), took.Seconds())
	}
	if small {
		b.find("mcpu.small-segments", evidence{}, "the list of %d bytes arrived in %d pieces", len(r.raw), r.line.reads)
	}
	return fmt.Sprintf(", the list in %v", r.took.Round(time.Millisecond)), nil
}

// sampling compares the samples that arrive with the interval that the list states.
func (b *board) sampling(ctx context.Context) (string, error) {
	const enough = 6 * time.Second
	var texts []string
	for _, s := range b.samples {
		if s.Sampling == nil || s.Sampling.IntervalMS <= 0 {
			continue
		}
		interval := time.Duration(s.Sampling.IntervalMS * float64(time.Millisecond))
		wait := min(10*interval, enough) - time.Since(s.at)
		if interval > enough || len(texts) >= 8 {
			continue
		}
		if wait > 0 && pause(ctx, wait) != nil {
			return "", ctx.Err()
		}
		r, ok, err := b.read(ctx, "get_pin_summary", fmt.Sprintf(`{"pin":%d}`, *s.Pin))
		if err != nil {
			return "", err
		}
		var v struct{ Samples int }
		if !ok || json.Unmarshal(r.result, &v) != nil || v.Samples >= 65535 || v.Samples < s.count {
			continue
		}
		if v.Samples == 0 && b.found("mcpu.failed-call") { // the sensor fails, not the clock
			texts = append(texts, s.Name+" has no samples")
			continue
		}
		took, got := r.line.at.Sub(s.at), v.Samples-s.count
		want := float64(took) / float64(interval)
		texts = append(texts, fmt.Sprintf("%s every %v", s.Name, interval))
		if math.Abs(float64(got)-want) > max(1.6, want/5) {
			b.find("mcpu.sampling-interval", r.evidence(), "pin %d states a sample every %v; in %.1f s there were %d samples instead of %.0f", *s.Pin, interval, took.Seconds(), got, want)
		}
	}
	if len(texts) == 0 {
		return "", errSkip("no pin states how often it is sampled")
	}
	return strings.Join(texts, ", "), nil
}

// reconnect opens the connection again, after requests and in the middle of an answer.
func (b *board) reconnect(ctx context.Context) (string, error) {
	before := b.list
	rounds := 3
	if b.baud > 0 || b.found("mcpu.slow-line") {
		rounds = 1 // most boards restart each time
	}
	var longest time.Duration
	for n := range rounds {
		if n == 1 { // leave in the middle of an answer
			_, line := b.line("list_tools", "")
			b.stream.write(line) // the next connection shows whether that matters
		}
		took, err := b.connect(ctx)
		if err != nil {
			return "", err
		}
		longest = max(longest, took)
		r := b.listTools(ctx)
		if err := b.stopped(ctx, r); err != nil {
			return "", err
		}
		if r.outcome == answered && r.err == nil && len(before.raw) > 0 && string(r.result) != string(before.raw) {
			b.parseList(r)
			b.find("mcpu.changing-list", r.evidence(), "after reconnecting the list differs: it had %d tools and %d pins, now %d and %d", len(before.tools), len(before.pins), len(b.list.tools), len(b.list.pins))
		}
	}
	if b.baud == 0 {
		if err := b.secondClient(ctx); err != nil {
			return "", err
		}
	}
	if longest > 5*time.Second {
		b.find("mcpu.slow-start", evidence{}, "after reconnecting the board answered after %.1f s", longest.Seconds())
	}
	return fmt.Sprintf("answers %.1f s after reconnecting", longest.Seconds()), nil
}

// noticeWait is how long a board has to notice a second client. The system accepts connections
// before the board's program does, and most programs serve one client only.
const noticeWait = 500 * time.Millisecond

// secondClient connects a second time, and tests whether the first connection goes on.
func (b *board) secondClient(ctx context.Context) error {
	var second *stream
	if conn, err := b.open(ctx); err == nil {
		second = newStream(conn)
		id, line := b.line("get_info", "")
		b.requests[id] = &request{sent: line, at: time.Now(), ignored: true} // some bridges send each answer to all clients
		second.write(line)                                                   // an answer only shows that the board has noticed
		select {
		case <-second.in:
		case <-time.After(noticeWait):
		case <-ctx.Done():
		}
	}
	r := b.ask(ctx, "get_info", "", infoWait)
	if second != nil {
		second.close() // a board may serve nobody else until it has left
	}
	if r.outcome == closed || r.outcome == silent {
		b.find("mcpu.second-client", r.evidence(), "when a second client connects, the first one is not answered anymore")
	}
	return b.stopped(ctx, r)
}

// lines judges what was received in the whole check.
func (b *board) lines(ctx context.Context) (string, error) {
	b.drain(ctx, 100*time.Millisecond, time.Second)
	return fmt.Sprintf("%d bytes on the last connection", b.judgeLines()), ctx.Err()
}

// drowned are findings about answers that are late or do not come. In a flood, nobody can tell
// whether the board or its noise is the cause.
var drowned = []string{
	"mcpu.deaf-start", "mcpu.slow-start", "mcpu.unanswered-call", "mcpu.slow-call", "mcpu.silent-error", "mcpu.split-request", "mcpu.line-ends", "mcpu.lost-request",
	"mcpu.short-ids", "mcpu.short-buffer", "mcpu.stuck", "mcpu.slow-answers", "mcpu.slow-line", "mcpu.slow-poll", "mcpu.polled-gap", "mcpu.second-client", "mcpu.stopped-answering", "mcpu.out-of-time",
}

// judgeLines judges what was received, and returns how many bytes that were on the last
// connection. It is called once, also if there was no time for the step: a flood is one
// reason for that.
func (b *board) judgeLines() int {
	b.linesJudged = true
	s, _ := b.stream.counts()
	if noise, lines := b.noiseBytes+s.noise, b.noiseLines+s.lines; noise > 512<<10 || lines > 5000 {
		b.find("mcpu.noise-flood", evidence{}, "%d lines and %d bytes were not answers", lines, noise)
		b.forget(drowned...)
	}
	if s.open > longAnswer {
		b.find("mcpu.endless-line", evidence{"", string(s.tail)}, "%d bytes without a line end were received", s.open)
	}
	return s.bytes
}

// actuate writes outputs, and reads them back. Only outputs that were set are counted.
func (b *board) actuate(ctx context.Context) (string, error) {
	if !b.options.Actuate {
		return "", errSkip("nothing is changed without --actuate")
	}
	outputs, set := 0, 0
	for _, p := range b.list.pins {
		var done bool
		var err error
		switch p.Type {
		case "digital_output":
			done, err = b.toggle(ctx, p)
		case "pwm_output":
			_, done, err = b.write(ctx, "pwm_write", fmt.Sprintf(`{"pin":%d,"duty":0}`, *p.Pin))
		default:
			continue
		}
		if err != nil {
			return "", err
		}
		outputs++
		if done {
			set++
		}
	}
	switch {
	case outputs == 0:
		return "", errSkip("the board has no outputs")
	case set < outputs:
		return "", errFailed(fmt.Sprintf("%d of %d outputs could be set", set, outputs))
	}
	return fmt.Sprintf("%d of %d outputs set", set, outputs), nil
}

// write sends a command once. An unanswered command may have run.
func (b *board) write(ctx context.Context, tool, params string) (reply, bool, error) {
	b.report.Actuated = true
	r, ok, err := b.read(ctx, tool, params)
	if err == nil {
		b.refusedCall(r, tool)
	}
	return r, ok, err
}

// Times of an output that is inverted. They count even if the check is interrupted.
const (
	invertTime  = callWait + infoWait + time.Second // to invert it
	restoreTime = 4 * time.Second                   // to set it back, in addition to maxTime
)

// toggle inverts an output, reads it back and restores it, even if ctx ends meanwhile or the
// check gives up. It reports whether the output followed. An output that cannot be read is
// not written, because it could not be restored.
func (b *board) toggle(ctx context.Context, p pin) (followed bool, err error) {
	before, ok, err := b.readLevel(ctx, p)
	if !ok || ctx.Err() != nil {
		return false, cmp.Or(err, ctx.Err())
	}
	kept := context.WithoutCancel(ctx)
	inverted, cancel := context.WithTimeout(kept, invertTime)
	defer cancel()
	if end, ok := ctx.Deadline(); ok {
		inverted, cancel = context.WithDeadline(inverted, end)
		defer cancel()
	}
	followed, inverting := b.set(inverted, p, !before)
	restored, cancel := context.WithTimeout(kept, restoreTime)
	defer cancel()
	if errors.Is(inverting, errGiveUp) { // the output may be inverted
		b.connect(restored) // set reports whether that helped
	}
	seen, err := b.set(restored, p, before)
	if !seen && err == nil { // the connection may have ended before the command
		seen, err = b.set(restored, p, before)
	}
	if !seen && !b.found("mcpu.write-not-seen") {
		b.find("mcpu.write-not-seen", evidence{}, "pin %d was not set back to %t: it may still be %t", *p.Pin, before, !before)
	}
	if errors.Is(inverting, errGiveUp) || errors.Is(err, errGiveUp) {
		return false, errGiveUp
	}
	return followed && seen, ctx.Err() // other errors are those of the two limits
}

// set sets an output and reads it back. It reports whether the output has the value then.
func (b *board) set(ctx context.Context, p pin, value bool) (seen bool, err error) {
	r, ok, err := b.write(ctx, "gpio_write", fmt.Sprintf(`{"pin":%d,"value":%t}`, *p.Pin, value))
	if err != nil {
		return false, err
	}
	got, read, err := b.readLevel(ctx, p)
	if ok && read && got != value {
		b.find("mcpu.write-not-seen", r.evidence(), "pin %d was set to %t, and gpio_read returns %t", *p.Pin, value, got)
	}
	return read && got == value, err
}

// readLevel reads a digital pin. It reports whether there is a value; if not, there is a
// finding.
func (b *board) readLevel(ctx context.Context, p pin) (value, ok bool, err error) {
	r, ok, err := b.read(ctx, "gpio_read", fmt.Sprintf(`{"pin":%d}`, *p.Pin))
	var v struct{ Value *bool }
	switch {
	case err != nil:
		return false, false, err
	case !ok:
		b.refusedCall(r, "gpio_read")
		return false, false, nil
	case json.Unmarshal(r.result, &v) != nil || v.Value == nil:
		b.level(r, p)
		return false, false, nil
	}
	return *v.Value, true, nil
}
