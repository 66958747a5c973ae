// Package approval holds calls until a person has approved them.
//
//	agent ─▶ pipeline ─▶ Await ── request ─▶ store ─▶ watch, webhook, list
//	                       ▲                              │
//	                       └── used, on disk ◀── Answer ◀─┘ a person
//
// An approval is for one caller, device, Kind, operation, tool, arguments and version of
// the policy: the binding. A caller is known by its token, so another token of the same name
// is another caller. It lets one call through, or, if a person says so, the same call
// for a time. Before a call goes on, the disk has that its approval is used, so a call that
// was approved once runs at most once, whenever the gateway is killed.
//
//	            Answer                      Await
//	waiting ─────────────▶ allowed ─────────────────────▶ used
//	   │                      │
//	   ├─▶ denied             ├─▶ denied (revoked)
//	   └─▶ expired            └─▶ expired
//
// Both also end when the policy changes, or the caller's token is revoked.
//
// Requests stay when their caller leaves or the gateway restarts. The same call of the same
// caller then joins the request, or uses the approval that was given meanwhile.
//
// Whatever cannot be stored, or is not as it was approved, does not run.
package approval

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Config holds the times and limits of approvals.
type Config struct {
	// Wait is how long a request waits for an answer.
	Wait time.Duration
	// Keep is how long an approval for one call can be used.
	Keep time.Duration
	// AskAgentsUser lists agents whose own user may approve their calls, asked through the
	// agent.
	AskAgentsUser []string
	Webhook       Webhook
	// PerCaller and Total limit the requests that wait.
	PerCaller, Total int
}

// Webhook is a URL that is told about requests.
type Webhook struct {
	// URL is empty for none. It may contain a secret.
	URL ferrule.Secret
	// Secret signs what is sent.
	Secret ferrule.Secret
	// Link is the URL under which people reach this gateway; empty if they cannot.
	Link string
}

// Limits of the times.
const (
	MaxWait     = 24 * time.Hour
	MaxKeep     = 24 * time.Hour
	MaxStanding = 24 * time.Hour
	minSecret   = 16
)

// DefaultConfig returns a wait of five minutes.
func DefaultConfig() Config {
	return Config{Wait: 5 * time.Minute, Keep: time.Hour, PerCaller: 16, Total: 256}
}

// Check returns an error if a value is out of range.
func (c Config) Check() error {
	switch {
	case c.Wait < time.Second || c.Wait > MaxWait:
		return fmt.Errorf("wait: must be from 1s to %v, got %v", MaxWait, c.Wait)
	case c.Keep < time.Second || c.Keep > MaxKeep:
		return fmt.Errorf("keep: must be from 1s to %v, got %v", MaxKeep, c.Keep)
	case slices.Contains(c.AskAgentsUser, ""):
		return errors.New("ask_agents_user: a name is empty")
	}
	return c.Webhook.check()
}

// CheckWebhook returns what is wrong with a webhook.
func CheckWebhook(w Webhook) error { return w.check() }

func (w Webhook) check() error {
	if w.URL == "" {
		if w != (Webhook{}) {
			return errors.New("webhook: secret and link need a url")
		}
		return nil
	}
	to, err := url.Parse(w.URL.Reveal())
	if err != nil || to.Host == "" || to.Scheme != "https" && to.Scheme != "http" {
		return errors.New("webhook.url: must begin with https:// or http://")
	}
	if n := len(w.Secret); n < minSecret {
		return fmt.Errorf("webhook.secret: must have at least %d characters, got %d; create one with: openssl rand -hex 32", minSecret, n)
	}
	if w.Link == "" {
		return nil
	}
	link, err := url.Parse(w.Link)
	switch {
	case err != nil || link.Host == "" || link.RawQuery != "" || link.Fragment != "" || link.User != nil:
		return fmt.Errorf("webhook.link: must be a URL such as https://ferrule.example.com, got %q", ferrule.MaskURL(w.Link))
	case !private(link):
		return errors.New("webhook.link: must begin with https://: anyone who reads the network could approve")
	case !private(to):
		return errors.New("webhook.url: must begin with https:// if there is a link: anyone who reads the network could approve")
	}
	return nil
}

// private reports whether others on the network cannot read what is sent to a URL.
func private(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

// Journal stores records. Append of a durable record returns when it is on disk.
type Journal interface {
	Append(e ferrule.Entry, durable bool) error
}

// Devices finds devices by ID.
type Devices interface {
	Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool)
}

// Parts is what approvals need.
type Parts struct {
	Config Config
	Dir    string // data directory
	// Node is the name of this node, if there are others; empty if not.
	Node    string
	Journal Journal
	Devices Devices
	// Version identifies all rules of the policy. Approvals end when it changes.
	Version func() string
	// Decide is the policy, which is asked again after a wait; it may be nil.
	Decide func(call *ferrule.Call) ferrule.Verdict
	// Revoked returns why the caller of a request is not let in any more, for example because
	// its token was revoked; empty if it is. Via is the node that vouches for the caller. It is
	// called with the lock held, and must not call back. It may be nil.
	Revoked func(who ferrule.Principal, via string) string
	// Stopped says why a device may not be changed now, or returns ""; it may be nil.
	Stopped func(dev *ferrule.Device) string
	// Event is called when a request is made or has ended; it may be nil. It must not block.
	Event func(ferrule.Event)
	// Page returns the URL of the page on which people answer, or "" if there is none; it may
	// be nil.
	Page func() string
	Log  *slog.Logger
}

// Approvals has the requests of one node.
type Approvals struct {
	parts   Parts
	cfg     Config
	wake    chan struct{} // holds a value if Run should look at the times
	notices chan notice   // to the webhook

	mu    sync.Mutex
	store *store
	byID  map[string]*request // all, and some that have ended
	byKey map[string]*request // waiting and allowed
	ended []*request          // of byID, oldest first
	wrong ratelimit.Limiter   // counts wrong tokens of links
}

// maxEnded is how many requests are remembered after their end, to say what became of
// them. maxStored limits requests and approvals together.
const (
	maxEnded  = 512
	maxStored = 1024
)

// Open reads the requests and approvals of a data directory.
func Open(parts Parts) (*Approvals, error) {
	if parts.Version == nil {
		parts.Version = func() string { return "" }
	}
	if parts.Revoked == nil {
		parts.Revoked = func(ferrule.Principal, string) string { return "" }
	}
	if parts.Stopped == nil {
		parts.Stopped = func(*ferrule.Device) string { return "" }
	}
	a := &Approvals{
		parts: parts, cfg: parts.Config, wake: make(chan struct{}, 1), notices: make(chan notice, maxStored),
		byID: make(map[string]*request), byKey: make(map[string]*request),
	}
	stored, all, err := openStore(parts.Dir, time.Now(), parts.Log)
	if err != nil {
		return nil, fmt.Errorf("opening the approvals: %w", err)
	}
	a.store = stored
	for _, r := range all {
		a.add(r)
	}
	return a, nil
}

// Close closes the file. Calls must have ended.
func (a *Approvals) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.store.close()
}

// Run ends requests in time and tells the webhook about them, until ctx ends.
func (a *Approvals) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	hook := newHook(a)
	a.notifyAll()
	for {
		next := a.sweepAll()
		select {
		case n := <-a.notices:
			if hook != nil {
				wg.Go(func() { hook.deliver(ctx, n) })
			}
		case <-a.wake:
		case <-time.After(next):
		case <-ctx.Done():
			return nil
		}
	}
}

// request is a Record with what is not stored. All but ID and Binding is guarded by mu.
type request struct {
	Record
	key     string
	state   state
	calls   int           // that wait
	changed chan struct{} // closed when the request changes, and then replaced
	why     string        // the reason of the state revoked
	// notified reports whether this run has told the webhook, or will.
	notified bool
}

type state string

const (
	waiting state = "waiting"
	allowed state = "allowed"
	denied  state = "denied"
	expired state = "expired"
	used    state = "used"
	void    state = "void"    // the policy changed
	revoked state = "revoked" // the caller's token was
)

func (a *Approvals) add(r Record) *request {
	q := &request{Record: r, key: r.key(), state: waiting, changed: make(chan struct{})}
	if r.By != "" {
		q.state = allowed
	}
	a.byID[q.ID], a.byKey[q.key] = q, q
	a.Recheck()
	return q
}

// Recheck makes Run end soon what has to end, for example because a token was revoked. It does
// not block.
func (a *Approvals) Recheck() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// over reports whether a time has passed, by the clock that shows more: the monotonic
// clock stops while a machine sleeps, and the wall clock can be set back.
func over(now, end time.Time) bool {
	return !now.Before(end) || !now.Round(0).Before(end.Round(0))
}

// sweepAll ends what is over, and returns the time until something will be.
func (a *Approvals) sweepAll() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, version := time.Now(), a.parts.Version()
	next := time.Minute // a machine may have slept
	for _, r := range a.byKey {
		if a.sweep(r, now, version) {
			next = min(next, r.Expires.Sub(now))
		}
	}
	return max(next, time.Millisecond)
}

// sweep ends a request or an approval whose time is over, that belongs to another version
// of the policy, or whose caller's token was revoked. It reports whether r is still waiting
// or allowed, and is called with mu held.
func (a *Approvals) sweep(r *request, now time.Time, version string) bool {
	if r.state != waiting && r.state != allowed {
		return false
	}
	switch why := a.parts.Revoked(r.Principal, r.Via); {
	case r.Policy != version:
		a.end(r, void, "ended: the policy changed")
	case why != "":
		r.why = why
		a.end(r, revoked, "ended: "+why)
	case over(now, r.Expires) && r.state == allowed:
		// model: approve_expire
		a.end(r, expired, "expired: the approval by "+r.By+" ended")
	case over(now, r.Expires):
		a.end(r, expired, "expired without an answer")
	default:
		return true
	}
	return false
}

// end ends a request for good, and wakes its calls. It is called with mu held. That it is
// not on disk yet is harmless, except for an approval that is used.
func (a *Approvals) end(r *request, s state, message string) {
	a.forget(r, s)
	if err := a.store.drop(r.ID, false); err != nil {
		a.parts.Log.Warn("approvals: the end of a request is not stored", "device", r.Device, "tool", r.Tool, "err", err)
	}
	if err := a.record(r, r.Call, message, false); err != nil {
		a.parts.Log.Error("approvals: not recorded: "+message, "call", r.Call, "device", r.Device, "tool", r.Tool, "err", err)
	}
	a.tell(r, message)
}

// forget ends a request in memory. It is called with mu held.
func (a *Approvals) forget(r *request, s state) {
	r.state = s
	if a.byKey[r.key] == r {
		delete(a.byKey, r.key)
	}
	a.ended = append(a.ended, r)
	if len(a.ended) > maxEnded {
		delete(a.byID, a.ended[0].ID)
		a.ended = slices.Delete(a.ended, 0, 1)
	}
	r.alert()
}

// alert wakes the calls that wait for r. It is called with mu held.
func (r *request) alert() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// record writes one step to the journal.
func (a *Approvals) record(r *request, call, message string, durable bool) error {
	return a.parts.Journal.Append(ferrule.Entry{
		Call: call, Phase: ferrule.ApprovalStep, Principal: r.Principal, Via: r.Via, Client: r.Client, Device: r.Device, Kind: r.Kind,
		Operation: r.Operation, Tool: r.Tool, Args: r.Args, Verdict: ferrule.Ask, Rule: r.Rule, Message: fmt.Sprintf("approval %s of %s on %s: %s", a.fullID(r.ID), r.Tool, r.Device, message),
	}, durable)
}

// tell reports a step to people who watch.
func (a *Approvals) tell(r *request, message string) {
	if a.parts.Event == nil {
		return
	}
	a.parts.Event(ferrule.Event{
		Time: time.Now(), Type: ferrule.ApprovalEvent, Device: r.Device, Kind: r.Kind, Tools: []string{r.Tool},
		Reason: a.fullID(r.ID) + " " + message,
	})
}

// fullID returns an ID with its node, if there are others.
func (a *Approvals) fullID(id string) string {
	if a.parts.Node == "" {
		return id
	}
	return id + "@" + a.parts.Node
}

// SplitID returns the parts of an ID as people type it. The node is empty for this one.
func SplitID(id string) (code, node string) {
	code, node, _ = strings.Cut(strings.TrimSpace(id), "@")
	return strings.ToLower(code), node
}

// The characters of an ID are easy to tell apart and to type.
const (
	idLetters = "abcdefghjkmnpqrstuvwxyz23456789"
	idLength  = 5
)

// newID returns an ID that is not in use. It is called with mu held.
func (a *Approvals) newID() string {
	for {
		var raw [idLength]byte
		rand.Read(raw[:])
		for i, b := range raw {
			raw[i] = idLetters[int(b)%len(idLetters)]
		}
		if id := string(raw[:]); a.byID[id] == nil {
			return id
		}
	}
}

// List returns what waits for an answer, and approvals that can still be used, oldest
// first.
func (a *Approvals) List() []ferrule.Approval {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, version := time.Now(), a.parts.Version()
	all := []ferrule.Approval{}
	for _, r := range a.byKey {
		if a.sweep(r, now, version) {
			all = append(all, a.view(r))
		}
	}
	slices.SortFunc(all, func(x, y ferrule.Approval) int {
		return cmp.Or(x.Created.Compare(y.Created), strings.Compare(x.ID, y.ID))
	})
	return all
}

// Waiting returns how many requests wait for an answer.
func (a *Approvals) Waiting() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, version := time.Now(), a.parts.Version()
	for _, r := range a.byKey {
		if a.sweep(r, now, version) && r.state == waiting {
			n++
		}
	}
	return n
}

// view returns a request as people see it. It is called with mu held.
func (a *Approvals) view(r *request) ferrule.Approval {
	v := ferrule.Approval{
		ID: a.fullID(r.ID), Node: a.parts.Node, State: ferrule.ApprovalState(r.state), Caller: ferrule.Clean(r.Principal.String(), ferrule.MaxWord),
		Auth: r.Principal.Auth, TokenID: r.Principal.TokenID, User: ferrule.Clean(r.Principal.User, ferrule.MaxWord), Program: strings.TrimSpace(r.Client.Name + " " + r.Client.Version),
		Via: r.Via, Calls: r.calls, Device: r.Device, Model: r.Model, Kind: r.Kind, Labels: r.Labels, Operation: r.Operation, Tool: r.Tool,
		Args: r.Args, Effect: r.Effect, DeviceText: r.Text, Now: a.deviceNow(r), Reason: r.Reason, Rule: r.Rule,
		Created: r.Created.Round(0), Expires: r.Expires.Round(0), By: r.By, Standing: r.Standing,
	}
	return v
}

// deviceNow says what a device is doing now.
func (a *Approvals) deviceNow(r *request) string {
	dev, _, ok := a.parts.Devices.Lookup(r.Device)
	switch {
	case !ok:
		return "unknown: the gateway has no device of this name any longer"
	case dev.Kind != r.Kind:
		return fmt.Sprintf("%s, but its Kind has changed since; this request can no longer be used", dev.State)
	}
	now := fmt.Sprintf("%s since %s", dev.State, ferrule.FormatTime(dev.Since))
	if dev.Reason != "" {
		now += ": " + ferrule.Clean(dev.Reason, ferrule.MaxReason)
	}
	if why := a.stopped(dev, r.Effect); why != "" {
		now += "; " + why
	}
	return now
}

// stopped says that a call with an effect cannot run because changes are stopped, or
// returns "". Reads and the gateway's own tools are never stopped.
func (a *Approvals) stopped(dev *ferrule.Device, effect ferrule.Effect) string {
	if effect == ferrule.Reads || dev.ID == ferrule.GatewayID {
		return ""
	}
	why := a.parts.Stopped(dev)
	if why != "" {
		why = "changes are " + why
	}
	return why
}

// Answer is what a person says to a request.
type Answer struct {
	// Allow lets the call run. Otherwise it is denied.
	Allow bool
	// For allows the same call again for this long; 0 allows it once.
	For time.Duration
}

// Answer answers a request. The first answer counts; an approval that was not used yet can
// still be denied. Only a person can answer, and not the caller.
func (a *Approvals) Answer(who ferrule.Principal, id string, answer Answer) (ferrule.Approval, error) {
	if who.Role != ferrule.Person || who.Name == "" {
		return ferrule.Approval{}, ferrule.Errorf(ferrule.Denied, "only a person can answer a request for approval; %s is not one", ferrule.Clean(who.String(), ferrule.MaxWord))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.byID[id]
	if r == nil {
		return ferrule.Approval{}, ferrule.Errorf(ferrule.NotFound, "there is no request for approval %q", ferrule.Clean(id, ferrule.MaxWord)).
			WithHint("to list them, run `ferrule approvals`")
	}
	if answer.Allow && r.Principal.Role == ferrule.Person && r.Principal.Name == who.Name {
		return ferrule.Approval{}, ferrule.Errorf(ferrule.Denied, "%s is your own call, and you cannot approve it yourself", a.fullID(r.ID)).
			WithHint("ask another person to approve it")
	}
	return a.answer(r, ferrule.Clean(who.String(), ferrule.MaxWord), answer)
}

// answer answers a request on behalf of somebody who may. It is called with mu held.
func (a *Approvals) answer(r *request, by string, answer Answer) (ferrule.Approval, error) {
	now := time.Now()
	a.sweep(r, now, a.parts.Version())
	switch {
	case answer.For < 0 || answer.For > MaxStanding || !answer.Allow && answer.For != 0:
		return ferrule.Approval{}, ferrule.Errorf(ferrule.Invalid, "an approval can last from 0s, which is one call, to %v, got %v", MaxStanding, answer.For)
	case r.state == waiting, r.state == allowed && !answer.Allow:
	default:
		return ferrule.Approval{}, a.tooLate(r)
	}
	if !answer.Allow {
		message := "denied by " + by
		var notStored error
		if r.state == allowed {
			message += ", after it was allowed by " + r.By
			notStored = a.store.drop(r.ID, true) // a power cut must not bring it back
		}
		r.By = by
		// model: approve_deny
		a.end(r, denied, message)
		if notStored != nil {
			return ferrule.Approval{}, ferrule.Errorf(ferrule.Internal, "%s is denied, but the disk does not take it: after a restart, the approval could be used until %s: %w", a.fullID(r.ID), ferrule.FormatTime(r.Expires), notStored).
				WithHint("free disk space before you restart the gateway")
		}
		return a.view(r), nil
	}
	next, message := r.Record, "allowed once by "+by
	next.By, next.Standing, next.Expires = by, answer.For > 0, now.Add(a.cfg.Keep)
	if next.Standing {
		next.Expires = now.Add(answer.For)
		message = fmt.Sprintf("allowed for %v by %s", answer.For, by)
	}
	next.Link = "" // it has been used
	err := a.record(r, r.Call, message, true)
	if err == nil {
		err = a.store.put(next)
	}
	if err != nil {
		return ferrule.Approval{}, ferrule.Errorf(ferrule.Denied, "%s is not approved, because the approval cannot be stored: %w", a.fullID(r.ID), err).
			WithHint("check that the disk of the data directory is not full, then approve it again")
	}
	// model: approve_allow
	r.By, r.Standing, r.Expires, r.Link, r.state = next.By, next.Standing, next.Expires, next.Link, allowed
	r.alert()
	a.tell(r, message)
	a.Recheck()
	return a.view(r), nil
}

// tooLate returns the error for an answer to a request that has one, or has ended. It is
// called with mu held.
func (a *Approvals) tooLate(r *request) error {
	id := a.fullID(r.ID)
	switch r.state {
	case allowed:
		return ferrule.Errorf(ferrule.Denied, "%s was already allowed by %s; your answer changed nothing", id, r.By).
			WithHint("to take the approval back before it is used, run `ferrule deny %s`", id)
	case denied:
		return ferrule.Errorf(ferrule.Denied, "%s was already denied by %s; your answer changed nothing", id, r.By)
	case used:
		return ferrule.Errorf(ferrule.Denied, "%s was already allowed by %s, and the call went on; your answer changed nothing", id, r.By).
			WithHint("to see what became of it, run `ferrule audit --device %s`", r.Device)
	case void:
		return ferrule.Errorf(ferrule.Denied, "%s has ended, because the policy changed; your answer changed nothing", id).
			WithHint("the caller has to call again")
	case revoked:
		return ferrule.Errorf(ferrule.Denied, "%s has ended: %s; your answer changed nothing", id, r.why).
			WithHint("the caller has to call again, with a token or login that is accepted")
	}
	return ferrule.Errorf(ferrule.Denied, "%s has expired; your answer changed nothing", id).WithHint("the caller has to call again")
}

// hash returns the hash of a text in hexadecimal digits.
func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
