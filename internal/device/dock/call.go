package dock

import (
	"context"
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// breath is how long a broken link is given to be noticed by its reader.
const breath = 5 * time.Millisecond

// handle serves a call. While the device wants to know something first, its caller is
// asked, and it is called anew with the answers; others may call it meanwhile.
func (b *berth) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	for range maxRounds {
		result, err := b.invoke(ctx, call)
		if err != nil || result.InputRequest == nil {
			return result, err
		}
		knows, err := findOut(ctx, call, *result.InputRequest)
		if err != nil {
			return nil, err
		}
		next := *call
		next.Inputs = knows
		call = &next
	}
	return nil, ferrule.Errorf(ferrule.Failed, "%s wants to know ever more before it does %s", call.Device, call.Tool)
}

// invoke waits for the lane and has the session invoke a call. One that went
// unanswered is sent once more if that can do no harm, the link is back, and there is
// time.
func (b *berth) invoke(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	result, err := b.once(ctx, call)
	if codeOf(err) != ferrule.Unanswered || !repeatable(call) {
		return result, err
	}
	for b.linked(ctx, call) {
		again, errAgain := b.once(ctx, call)
		switch {
		case errAgain == nil || ferrule.AsError(errAgain).MayHaveRun():
			return again, errAgain
		case codeOf(errAgain) != ferrule.Offline:
			return nil, err
		}
	}
	return nil, err // it was sent the first time, whatever came of the second
}

// repeatable tells whether a call may be sent a second time. What the gateway asks for
// by itself it asks for again soon enough, so there the tool has to be one that reads.
func repeatable(call *ferrule.Call) bool {
	tool := call.Target.Tool
	return tool.Repeatable() && (call.Principal.Role != ferrule.Gateway || tool.Effect == ferrule.Reads)
}

// linked waits until there is a session. It is false if ctx ends first, or if there
// will be none: nothing is in sight any more, or another node has the device.
func (b *berth) linked(ctx context.Context, call *ferrule.Call) bool {
	select {
	case <-time.After(breath):
	case <-ctx.Done():
		return false
	}
	b.mu.Lock()
	session, never, arrival := b.session, b.standby || b.left, b.arrival
	b.mu.Unlock()
	if session != nil || never {
		return !never
	}
	call.Report(ferrule.Progress{Message: fmt.Sprintf("the link to %s broke; waiting for it to come back", call.Device)})
	select {
	case <-arrival:
		b.mu.Lock()
		defer b.mu.Unlock()
		return !b.standby && !b.left
	case <-ctx.Done():
		return false
	}
}

// codeOf is the code of an error, nothing for none.
func codeOf(err error) ferrule.Code {
	if err == nil {
		return ""
	}
	return ferrule.AsError(err).Code
}

// once sends a call at most once, to the device that it was resolved for.
func (b *berth) once(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	if err := b.enter(ctx, call); err != nil {
		return nil, err
	}
	defer b.lane.leave()
	b.mu.Lock()
	session, dev := b.session, b.slot.device.Load()
	b.mu.Unlock()
	switch meant := call.Target.Device; {
	case dev.ID != meant.ID || dev.Kind != meant.Kind || dev.Trust != meant.Trust:
		return nil, ferrule.Errorf(ferrule.Invalid, "%s is no longer what it was when the call was made", meant.ID).
			WithHint("`ferrule tools %s` shows what it is now", meant.ID)
	case session == nil:
		return nil, dev.OfflineError()
	}
	if call.Operation == ferrule.Subscribe || call.Operation == ferrule.Unsubscribe {
		return b.listen(ctx, session, call)
	}
	sent := time.Now()
	ctx, span := b.dock.takes.Begin(ctx, call)
	result, err := session.Invoke(ctx, call)
	b.dock.takes.End(span, call, err)
	if result != nil {
		result.Sent, result.Answered = sent, time.Now()
	}
	return result, err
}

// enter waits for the lane.
func (b *berth) enter(ctx context.Context, call *ferrule.Call) error {
	ctx, span := b.dock.waits.Begin(ctx, call)
	err := b.lane.enter(ctx, call)
	b.dock.waits.End(span, call, err)
	return err
}
