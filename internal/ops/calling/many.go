package calling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// IsPattern reports whether a name stands for several devices, such as lamp-*.
func IsPattern(name string) bool { return strings.ContainsAny(name, "*?[") }

// Selected is a device that a pattern matches, and its tool.
type Selected struct {
	Device string
	Tool   builtin.DescribedTool
	Args   json.RawMessage
}

// Select returns the devices that match a pattern and have a tool, and the names of those
// that match and lack it. Pending devices are left out: nobody can use them.
func Select(pattern, tool string, devices []builtin.DescribedDevice, describe func(id string) (builtin.DescribeDeviceOutput, error)) (all []Selected, lack []string, err error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, nil, fmt.Errorf("invalid pattern %q", pattern)
	}
	for _, d := range devices {
		if ok, _ := path.Match(pattern, d.ID); !ok || d.Trust == string(ferrule.TrustPending) {
			continue
		}
		about, err := describe(d.ID)
		if err != nil {
			return nil, nil, err
		}
		found := false
		for _, t := range about.Tools {
			if t.Name == tool {
				all, found = append(all, Selected{Device: d.ID, Tool: t}), true
			}
		}
		if !found {
			lack = append(lack, d.ID)
		}
	}
	if len(all) == 0 && len(lack) == 0 {
		return nil, nil, ferrule.Errorf(ferrule.NotFound, "no device matches %q", pattern).WithHint("Run `ferrule devices` to list them.")
	}
	if len(all) == 0 {
		return nil, nil, ferrule.Errorf(ferrule.NotFound, "no device that matches %q has a tool %q", pattern, tool)
	}
	return all, lack, nil
}

// OnlyReads reports whether the tools of all devices only read.
func OnlyReads(all []Selected) bool {
	for _, s := range all {
		if s.Tool.Effect != string(ferrule.Reads) || s.Tool.UserOnly {
			return false
		}
	}
	return true
}

// SameInput reports whether all devices have the same schema of the arguments.
func SameInput(all []Selected) bool {
	for _, s := range all {
		if string(s.Tool.Input) != string(all[0].Tool.Input) {
			return false
		}
	}
	return true
}

// ConfirmMany says what is called, and asks once.
func (s *Session) ConfirmMany(ctx context.Context, tool string, all []Selected, lack []string) bool {
	s.printf("%s of %s:\n", tool, Devices(len(all)))
	for _, one := range all {
		s.printf("  %s  %s\n", one.Device, shown(string(one.Args), maxShown))
	}
	if len(lack) > 0 {
		s.printf("Left out, because they have no such tool: %s.\n", shown(strings.Join(lack, ", "), maxShown))
	}
	return s.Confirm(ctx, "Call it on all of them?")
}

// Devices counts devices.
func Devices(n int) string {
	if n == 1 {
		return "1 device"
	}
	return fmt.Sprintf("%d devices", n)
}

// Outcome is what became of a call of one device.
type Outcome struct {
	Device string
	Result *ferrule.Result
	Err    error
}

// parallel is how many devices are called at a time.
const parallel = 8

// Many calls devices, several at a time, and calls show with each outcome, in the order of
// the devices. When ctx ends, those that were not called yet are not called.
func Many(ctx context.Context, all []Selected, call func(ctx context.Context, s Selected) (*ferrule.Result, error), show func(Outcome)) []Outcome {
	outcomes, done := make([]Outcome, len(all)), make([]chan struct{}, len(all))
	for i := range done {
		done[i] = make(chan struct{})
	}
	var wg sync.WaitGroup
	free := make(chan struct{}, parallel)
	wg.Go(func() {
		for i, s := range all {
			free <- struct{}{}
			wg.Go(func() {
				defer func() { <-free; close(done[i]) }()
				outcomes[i].Device = s.Device
				if ctx.Err() != nil {
					outcomes[i].Err = ferrule.Errorf(ferrule.Cancelled, "not called: interrupted")
					return
				}
				outcomes[i].Result, outcomes[i].Err = call(ctx, s)
			})
		}
	})
	for i := range all {
		<-done[i]
		show(outcomes[i])
	}
	wg.Wait()
	return outcomes
}

// Total returns the error for all outcomes: nil if all succeeded. If a call ran, or may
// have run, and another did not succeed, the error says that the action may have run.
func Total(all []Outcome) error {
	var first error
	done, maybe, not := 0, 0, 0
	for _, o := range all {
		var e *ferrule.Error
		switch {
		case o.Err == nil:
			done++
			continue
		case !errors.As(o.Err, &e) || e.MayHaveRun():
			maybe++
		default:
			not++
		}
		if first == nil {
			first = o.Err
		}
	}
	switch {
	case first == nil:
		return nil
	case done+maybe > 0:
		return ferrule.Errorf(ferrule.Unanswered, "the call succeeded on %d of %s, may have run on %d, and did not run on %d", done, Devices(len(all)), maybe, not).
			WithHint("Look at the outcome of each device before you call it again.")
	}
	out := *ferrule.AsError(first)
	out.Message = fmt.Sprintf("the call did not run on any of %s; the first reason is: %s", Devices(len(all)), out.Message)
	return &out
}

// Text returns an outcome in one line.
func (o Outcome) Text() string {
	if o.Err == nil {
		text := string(o.Result.Value)
		for _, c := range o.Result.Content {
			if len(o.Result.Value) == 0 && c.Text != "" {
				text += " " + c.Text
			}
		}
		return strings.TrimSpace(o.Device + "  done  " + shown(text, maxShown))
	}
	e := ferrule.AsError(o.Err)
	text := fmt.Sprintf("%s  %s  %s", o.Device, e.Code, shown(e.Message, maxShown))
	if e.MayHaveRun() {
		text += "  (" + e.Certainty() + ")"
	}
	return text
}

// JSON returns an outcome for JSON. Value is the answer as `ferrule call` prints it.
func (o Outcome) JSON(value any) map[string]any {
	if o.Err != nil {
		return map[string]any{"device": o.Device, "error": ferrule.AsError(o.Err)}
	}
	return map[string]any{"device": o.Device, "result": value}
}
