package dock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// linkGrace is the time for the reader of a broken link to notice it.
const linkGrace = 5 * time.Millisecond

// handle serves a call of a device in sight.
func (c *supervisor) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	return c.dock.handle(ctx, c, call)
}

// handle serves a call. While the device requests input first, it asks the caller
// and calls the device again with the answers. Other calls may run in between.
func (d *Dock) handle(ctx context.Context, c *supervisor, call *ferrule.Call) (*ferrule.Result, error) {
	result, err := d.perform(ctx, c, call)
	if err != nil || result == nil || call.Operation != ferrule.CallTool {
		return result, err
	}
	return begun(call, result)
}

// perform sends a call, and sends it again with answers as long as the device requests input.
func (d *Dock) perform(ctx context.Context, c *supervisor, call *ferrule.Call) (*ferrule.Result, error) {
	c, result, err := d.first(ctx, c, call)
	for round := 1; ; round++ {
		if err != nil || result.InputRequest == nil {
			return result, err
		}
		if round == maxRounds {
			return nil, ferrule.Errorf(ferrule.Failed, "%s on %s requested input more than %d times", call.Tool, call.Device, maxRounds)
		}
		inputs, failed := askAll(ctx, call, *result.InputRequest)
		if failed != nil {
			return nil, c.unanswered(ctx, call, failed)
		}
		next := *call
		next.Inputs = inputs
		call = &next
		if result, err = c.invoke(ctx, call); err != nil && codeOf(err) != ferrule.Refused && !ferrule.AsError(err).MayHaveRun() {
			// The device was called before, and nobody knows how far it got then.
			err = ferrule.Errorf(ferrule.Unanswered, "%s on %s asked for input, but could not be called again: %w", call.Tool, call.Device, err)
		}
	}
}

// invoke waits for the lane and sends a call. This is the only place where a call is
// retried: if nobody knows whether it arrived, it is sent a second time if the tool is
// repeatable, the link is back, and the deadline allows.
func (c *supervisor) invoke(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	result, err := c.sendOnce(ctx, call)
	if codeOf(err) != ferrule.Unanswered || ferrule.AsError(err).Final || !repeatable(call) {
		return result, err
	}
	for c.waitConnected(ctx, call) {
		again, errAgain := c.sendOnce(ctx, call)
		switch {
		case errAgain == nil || ferrule.AsError(errAgain).MayHaveRun():
			return again, errAgain
		case codeOf(errAgain) != ferrule.Offline:
			return nil, err
		}
	}
	return nil, err // the first attempt was sent, so its error counts
}

// repeatable reports whether a call may be sent a second time. For the gateway's own
// calls the tool must be read-only: they are repeated soon anyway.
func repeatable(call *ferrule.Call) bool {
	tool := call.Target.Tool
	return tool.Repeatable() && (call.Principal.Role != ferrule.Gateway || tool.Effect == ferrule.Reads)
}

// waitConnected waits for a session. It returns false if ctx ends first, or if there
// will be none: the peer is gone or another node holds the device.
func (c *supervisor) waitConnected(ctx context.Context, call *ferrule.Call) bool {
	select {
	case <-time.After(linkGrace):
	case <-ctx.Done():
		return false
	}
	c.mu.Lock()
	session, never, connected := c.session, c.standby || c.closed, c.connected
	c.mu.Unlock()
	if session != nil || never {
		return !never
	}
	call.Report(ferrule.Progress{Message: fmt.Sprintf("connection to %s lost; waiting for the reconnect", call.Device)})
	c.wake(time.Now(), c.dock.parts.Config.Grace)
	select {
	case <-connected:
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.standby && !c.closed
	case <-ctx.Done():
		return false
	}
}

// codeOf returns the code of an error, or "" for nil.
func codeOf(err error) ferrule.Code {
	if err == nil {
		return ""
	}
	return ferrule.AsError(err).Code
}

// sendOnce sends a call at most once, to the device that it was resolved for.
func (c *supervisor) sendOnce(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	if err := c.enterLane(ctx, call); err != nil {
		return nil, err
	}
	defer c.lane.leave()
	session := c.presentSession()
	if changer, ok := session.(protocol.Changer); ok {
		if err := changer.Settled(ctx); err != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled while waiting for %s", call.Device)
			}
			return nil, ferrule.Errorf(ferrule.Busy, "%s has changed and is being read again; nothing was sent to it", call.Device).WithHint("retry in a moment")
		}
		session = c.presentSession()
	}
	if err := c.checkCurrent(call); err != nil {
		return nil, err
	}
	if session == nil {
		// model: call_fail
		return nil, c.slot.device.Load().OfflineError()
	}
	if call.Operation == ferrule.Subscribe || call.Operation == ferrule.Unsubscribe {
		return c.subscribe(ctx, session, call)
	}
	if err := ferrule.MaySend(ctx); err != nil {
		return nil, err
	}
	sent := time.Now()
	ctx, span := c.dock.deviceMeter.Begin(ctx, call)
	// model: call_run
	result, err := invoke(ctx, session, call)
	c.dock.deviceMeter.End(span, call, err)
	if result != nil {
		result.Sent, result.Answered = sent, time.Now()
	}
	return result, err
}

// presentSession returns the session, which may be nil.
func (c *supervisor) presentSession() protocol.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// checkCurrent returns an error if the device is not what a call was resolved for.
func (c *supervisor) checkCurrent(call *ferrule.Call) error {
	dev, target := c.slot.device.Load(), call.Target.Device
	if dev.ID == target.ID && dev.Kind == target.Kind && dev.Trust == target.Trust {
		return nil
	}
	return ferrule.Errorf(ferrule.Invalid, "%s changed while the call was waiting", target.ID).
		WithHint("to see its tools now, run `ferrule tools %s`", target.ID)
}

// yield passes on whether callers wait. The lane calls it with its lock held.
func (c *supervisor) yield(waiting bool) {
	if y, ok := c.presentSession().(protocol.Yielder); ok {
		y.Yield(waiting)
	}
}

// enterLane waits for the lane.
func (c *supervisor) enterLane(ctx context.Context, call *ferrule.Call) error {
	if call.Operation.OfJob() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, jobTime)
		defer cancel()
	}
	ctx, span := c.dock.laneMeter.Begin(ctx, call)
	err := c.lane.enter(ctx, call)
	c.dock.laneMeter.End(span, call, err)
	return err
}
