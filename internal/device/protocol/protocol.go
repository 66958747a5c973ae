// Package protocol is the contract of a grammar: how a peer that speaks it is
// greeted, what it says of itself, and how it is asked to do something. It knows
// no medium.
//
//	Link ──Greet──▶ Manifest   what the device is
//	            └─▶ Session ◀──Invoke── one call
//	                        ──Run────▶ reads until the link ends
//
// One folder below holds one grammar. Every grammar passes the suite in
// dialecttest.
package protocol

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ErrNotMine is returned by Greet when the peer does not speak the grammar.
// Errors that wrap it say what came instead.
var ErrNotMine = errors.New("it does not speak this protocol")

// Dialect is one grammar over any Link.
type Protocol interface {
	// Greet finds out whether the peer speaks the grammar and what it says of
	// itself. It uses the link alone and starts no goroutine that outlives it.
	// What it sends can be repeated without harm to the device. The manifest
	// belongs to the caller. With an error, the link is left for the caller to
	// close.
	Greet(ctx context.Context, link transport.Link) (Session, *ferrule.Manifest, error)
}

// Session is one conversation with one device.
type Session interface {
	// Invoke has the device do what the call asks for, while Run runs. The
	// host calls it for one call at a time. Each call is sent once at the most.
	// An error is a *ferrule.Error and says whether anything was sent; in
	// particular Unanswered when the link breaks or ctx's deadline passes after
	// it was, Cancelled when ctx ends otherwise, and Offline when the link was
	// gone before.
	Invoke(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error)

	// Run reads the link until it breaks or ctx ends, and closes it. It is the
	// only goroutine of an idle session over a link of messages. It returns nil if
	// ctx ended, else why the link broke; by then every Invoke has its outcome.
	Run(ctx context.Context) error
}

// Notifier is an ability that a Session may have: its device speaks unasked.
type Notifier interface {
	// Notify sets who is told what the device says by itself. It is called before
	// Run; fn is called by Run, one notification after the other, and must not
	// block. A grammar bounds how long they are and how many. Nothing that a
	// device says is to be trusted.
	Notify(fn func(method string, params json.RawMessage))
}

// Changer is an ability that a Session may have: what its device says of itself may
// change while the conversation goes on.
type Changer interface {
	// Changed sets who is told what the device says of itself now. It is called before
	// Run; fn is called by one goroutine at a time while Run runs, and owns the
	// manifest.
	Changed(fn func(m *ferrule.Manifest))
}
