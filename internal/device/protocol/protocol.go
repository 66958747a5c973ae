// Package protocol is the contract of a device protocol: how to greet a peer, read
// its manifest and call its tools. A protocol works over any transport.
//
//	Link ──Greet──▶ Manifest   what the device offers
//	            └─▶ Session ◀──Invoke── one call
//	                        ──Run────▶ reads until the link ends
//
// Each folder below holds one protocol, except jsonrpc and content, which they share,
// and protocoltest, the suite that every protocol passes.
package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ErrNotMine is returned by Greet when the peer does not speak the protocol. Errors
// that wrap it say what the peer did instead.
var ErrNotMine = errors.New("it does not speak this protocol")

// Protocol is one device protocol over any Link.
type Protocol interface {
	// Greet checks that the peer speaks the protocol, and reads its manifest. It
	// must be the only user of the link, and starts no goroutine that outlives it.
	// Whatever it sends is safe to repeat. The caller owns the manifest. If Greet
	// fails, the caller closes the link.
	Greet(ctx context.Context, link transport.Link) (Session, *ferrule.Manifest, error)
}

// Session is one connection to one device, after the greeting.
type Session interface {
	// Invoke performs one call. It needs a running Run, and must not be called
	// concurrently. A call is sent at most once. An error is a *ferrule.Error that
	// says whether the call may have run: Offline if the link was gone before,
	// Unanswered if the link breaks or the deadline passes after sending, and
	// Cancelled if ctx ends otherwise.
	Invoke(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error)

	// Run reads the link until it breaks or ctx ends, and closes it. Over a link
	// of messages, it is the only goroutine of an idle session. It returns nil if
	// ctx ended, else why the link broke; by then every Invoke has returned.
	Run(ctx context.Context) error
}

// JobSession is implemented by a Session whose device may answer a call with a Job: it does
// the work by itself, and is asked for the outcome later.
type JobSession interface {
	// Job performs a PollJob or a CancelJob, under the same rules as Invoke. The result has a
	// Job while the device still works. An error with JobEnded is the outcome; another one
	// only says that the device could not be asked.
	Job(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error)
}

// Notifier is implemented by a Session whose device sends notifications.
type Notifier interface {
	// Notify sets the handler of notifications. It must be called before Run. Run
	// calls fn for one notification at a time; fn must not block. The protocol
	// limits their size and rate. Params are untrusted.
	Notify(fn func(method string, params json.RawMessage))
}

// Changer is implemented by a Session whose device can change its manifest while it
// is connected.
type Changer interface {
	// Changed sets the handler of a new manifest. It must be called before Run.
	// While Run runs, one goroutine at a time calls fn, which owns the manifest.
	// No call is sent from the moment that a change is noticed until fn has returned,
	// so that none can reach a tool that has just changed. Invoke calls current, which
	// must not block, after that and before it sends anything; its error is that of the
	// call.
	Changed(fn func(m *ferrule.Manifest), current func(call *ferrule.Call) error)
	// Settled waits until no changed manifest is being read. It returns ctx's error if
	// ctx ends first.
	Settled(ctx context.Context) error
}

// Yielder is implemented by a Session whose calls can last long because they only watch
// what the device does.
type Yielder interface {
	// Yield says whether other callers wait for the device. While they do, a call that only
	// watches ends early and says so: the next one may be the one that stops the device.
	// Yield must not block or call back.
	Yield(waiting bool)
}

// Reporter is implemented by a Session whose device sends measurements by itself.
type Reporter interface {
	// Report sets the handler of measurements. It must be called before Run. Run calls fn
	// for one message of the device at a time, with the time at which it arrived; fn must
	// not block. Values that somebody had kept for later are not reported.
	Report(fn func(at time.Time, measured []ferrule.Measurement))
}
