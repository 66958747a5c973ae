package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
	"github.com/ferrulehq/ferrule/internal/ops/arguments"
	"github.com/ferrulehq/ferrule/internal/ops/calling"
)

// answerTime is the time of a call in which the device may ask the person something.
const answerTime = 5 * time.Minute

// caller makes the calls of `ferrule call`.
type caller struct {
	*app
	session *calling.Session
	client  *control.Client
	yes     bool
	timeout time.Duration
	asks    bool // the device may ask
}

func (a *app) newCaller(yes bool, timeout time.Duration) *caller {
	s := &calling.Session{Out: a.stderr, Style: a.style}
	if !a.json && isTerminal(os.Stdin) {
		s.Lines = &terminal.Reader{In: os.Stdin}
	}
	if f, ok := a.stderr.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		if _, _, ok := terminal.Size(f); ok {
			s.Width = func() int { width, _, _ := terminal.Size(f); return width }
		}
	}
	return &caller{app: a, session: s, yes: yes, timeout: timeout}
}

// Close closes the connection to the gateway.
func (c *caller) Close() {
	if c.client != nil {
		c.client.Close()
	}
}

// prepare returns a tool, and the arguments after the person was asked for what is missing.
func (c *caller) prepare(ctx context.Context, device, name string, words []string) (tool builtin.DescribedTool, values json.RawMessage, err error) {
	about, tool, err := c.toolFor(ctx, device, name)
	if err != nil {
		return tool, nil, err
	}
	c.asks = about.Device.Asks
	if values, err = arguments.Parse(words, json.RawMessage(tool.Input)); err != nil {
		return tool, nil, usageError{err}
	}
	own := device == ferrule.GatewayID
	if tool.Name != "" && tool.Quarantine == "" && !own {
		if d := about.Device; d.State != string(ferrule.StateOnline) { // before the person types
			c.progress(ferrule.Progress{Message: fmt.Sprintf("%s is %s: %s", d.ID, d.State, d.Reason)})
		}
		if values, err = c.askArguments(ctx, device, tool, values); err != nil {
			return tool, nil, err
		}
	}
	if tool.UserOnly && !own && !c.yes {
		err = c.confirm(ctx, device, tool, values)
	}
	return tool, values, err
}

// askArguments asks for arguments that are missing, if somebody can be asked.
func (c *caller) askArguments(ctx context.Context, device string, t builtin.DescribedTool, values json.RawMessage) (json.RawMessage, error) {
	if !c.session.Asks() || c.yes {
		return values, nil
	}
	values, err := c.session.Arguments(ctx, device, t.Name, t.Text, json.RawMessage(t.Input), values)
	if errors.Is(err, calling.ErrDeclined) {
		return nil, ferrule.Errorf(ferrule.Cancelled, "%s was not called: not confirmed", t.Name)
	}
	return values, err
}

// confirm asks for confirmation of a call of a tool for people only.
func (c *caller) confirm(ctx context.Context, device string, t builtin.DescribedTool, args json.RawMessage) error {
	if !c.session.Asks() {
		return usageError{fmt.Errorf("%s of %s needs confirmation: add --yes", t.Name, device)}
	}
	question := fmt.Sprintf("%s of %s needs confirmation: %s\nCall it with %s?", c.style(bold, t.Name), device, ferrule.OneLine(ferrule.Clean(t.Text, ferrule.MaxText), 200), args)
	if !c.session.Confirm(ctx, question) {
		return ferrule.Errorf(ferrule.Cancelled, "%s was not called: not confirmed", t.Name)
	}
	return nil
}

// call makes one call.
func (c *caller) call(ctx context.Context, device, tool string, args json.RawMessage, progress func(ferrule.Progress)) (*ferrule.Result, error) {
	if c.client == nil {
		var err error
		if c.client, err = c.app.client(); err != nil {
			return nil, err
		}
	}
	call := &ferrule.Call{Principal: control.User(), Device: device, Tool: tool, Args: args, Timeout: ferrule.Duration(c.timeout), Progress: progress}
	if c.session.Asks() {
		call.Ask, call.Askable = c.session.Question, calling.Askable
		if c.asks && c.timeout == 0 {
			call.Timeout = ferrule.Duration(answerTime)
		}
	}
	result, err := c.client.Handle(ctx, call)
	c.session.End()
	return result, err
}

// progress shows the progress of a call on a terminal.
func (c *caller) progress(p ferrule.Progress) {
	if !c.json && isTerminal(c.stderr) {
		c.session.Progress(p)
	}
}

// callMany calls a tool of all devices that match a pattern.
func (a *app) callMany(ctx context.Context, c *caller, pattern, tool string, words []string) error {
	devices, err := a.devices(ctx)
	if err != nil {
		return err
	}
	all, lack, err := calling.Select(pattern, tool, devices, func(id string) (builtin.DescribeDeviceOutput, error) {
		about, err := a.describe(ctx, id)
		c.asks = c.asks || about.Device.Asks
		return about, err
	})
	if err != nil {
		return err
	}
	same := calling.SameInput(all)
	for i := range all {
		if all[i].Args, err = arguments.Parse(words, json.RawMessage(all[i].Tool.Input)); err != nil {
			return usageError{err}
		}
		switch {
		case same && i > 0:
			all[i].Args = all[0].Args
		case same:
			if all[0].Args, err = c.askArguments(ctx, pattern, all[0].Tool, all[0].Args); err != nil {
				return err
			}
		}
	}
	if !calling.OnlyReads(all) && !c.yes {
		if !c.session.Asks() {
			return usageError{fmt.Errorf("%s of %s needs confirmation: add --yes", tool, calling.Devices(len(all)))}
		}
		if !c.session.ConfirmMany(ctx, tool, all, lack) {
			return ferrule.Errorf(ferrule.Cancelled, "%s was not called: not confirmed", tool)
		}
	}
	if c.client, err = a.client(); err != nil {
		return err
	}
	shown := []map[string]any{}
	outcomes := calling.Many(ctx, all, func(ctx context.Context, s calling.Selected) (*ferrule.Result, error) {
		return c.call(ctx, s.Device, s.Tool.Name, s.Args, nil)
	}, func(o calling.Outcome) {
		var value any
		if o.Err == nil {
			var failed error
			if value, _, failed = a.resultValue(o.Result, ""); failed != nil {
				fmt.Fprintln(a.stderr, failed)
			}
		}
		if shown = append(shown, o.JSON(value)); !a.json {
			fmt.Fprintln(a.stdout, o.Text())
		}
	})
	if a.json {
		err = a.printJSON(shown)
	}
	return errors.Join(err, calling.Total(outcomes))
}

// toolFor returns the description of a device and its tool. The tool is empty if there is
// none; then the call itself fails with a better message.
func (a *app) toolFor(ctx context.Context, device, name string) (about builtin.DescribeDeviceOutput, tool builtin.DescribedTool, err error) {
	about, err = a.describe(ctx, device)
	var e *ferrule.Error
	if err != nil && !(errors.As(err, &e) && e.Code == ferrule.NotFound) {
		return about, tool, err
	}
	for _, t := range about.Tools {
		if t.Name == name {
			return about, t, nil
		}
	}
	return about, tool, nil
}
