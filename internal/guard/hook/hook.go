// Package hook asks programs and web services of the owner about calls, and tells them how
// calls ended.
//
//	pipeline --Before--> each hook in order --> allow, or refuse with a reason
//	         --After---> each hook, in the background
//
// A hook can only refuse: the policy has permitted the call before, and a person has
// approved it if necessary. A hook that fails refuses the call, unless its owner chose
// otherwise. Time, size and concurrency are limited.
package hook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/program"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Config is one hook. It has either a URL or a Command.
type Config struct {
	Name string
	// URL gets a POST with JSON. Token is sent as a bearer token; it may be empty.
	URL   string
	Token ferrule.Secret
	// Command gets JSON on its standard input.
	Command program.Command
	// Before asks the hook before a call, After tells it the outcome.
	Before, After bool
	// AllowOnError lets a call go on if the hook fails. Otherwise it is refused.
	AllowOnError bool
	// Timeout limits one question, including the wait for others, which are at most
	// Parallel at a time.
	Timeout  time.Duration
	Parallel int
	// Devices are patterns of IDs, and Effects are those of tools; empty for all. The
	// gateway's own tools are included only if Devices has its ID.
	Devices []string
	Effects []ferrule.Effect
}

// The defaults and limits of a Config.
const (
	DefaultTimeout  = 5 * time.Second
	DefaultParallel = 8
	maxTimeout      = 30 * time.Second
	maxParallel     = 64
	maxHooks        = 16
)

// Check returns the first problem of hooks.
func Check(hooks []Config) error {
	if n := len(hooks); n > maxHooks {
		return fmt.Errorf("there are %d; limit is %d", n, maxHooks)
	}
	seen := make(map[string]bool)
	for _, c := range hooks {
		if err := ferrule.CheckID(c.Name); err != nil {
			return fmt.Errorf("name: %w", err)
		}
		if seen[c.Name] {
			return fmt.Errorf("duplicate name %q", c.Name)
		}
		seen[c.Name] = true
		if err := c.check(); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

func (c Config) check() error {
	switch {
	case (c.URL == "") == (len(c.Command.Args) == 0):
		return errors.New("must have either url or exec")
	case !c.Before && !c.After:
		return errors.New("when: must have before, after or both")
	case c.Timeout <= 0 || c.Timeout > maxTimeout:
		return fmt.Errorf("timeout: must be greater than 0 and at most %v, got %v", maxTimeout, c.Timeout)
	case c.Parallel < 1 || c.Parallel > maxParallel:
		return fmt.Errorf("parallel: must be from 1 to %d, got %d", maxParallel, c.Parallel)
	}
	for _, pattern := range c.Devices {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return fmt.Errorf("devices: %q must be a device or a pattern such as lamp-*", pattern)
		}
	}
	for _, effect := range c.Effects {
		if !slices.Contains([]ferrule.Effect{ferrule.Reads, ferrule.Changes, ferrule.Endangers}, effect) {
			return fmt.Errorf("effects: %q must be reads, changes or endangers", effect)
		}
	}
	if c.URL == "" {
		if c.Token != "" {
			return errors.New("token: needs url")
		}
		if err := c.Command.Check(); err != nil {
			return fmt.Errorf("exec: %w", err)
		}
		return nil
	}
	return checkURL(c.URL)
}

// checkURL checks the URL of a hook. Its answers must be authentic, so it needs TLS unless it
// is on this machine.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Fragment != "":
		return errors.New("url: must be a URL such as https://hooks.example.com/calls")
	case u.User != nil:
		return errors.New("url: must not contain a password; use token or file")
	case u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback():
		return errors.New("url: must begin with https, unless it is on this machine")
	}
	return nil
}

// Hooks are the hooks of a gateway. It is safe for concurrent use.
type Hooks struct {
	log     *slog.Logger
	failed  *ratelimit.Digest[string, string] // last error, by hook
	current atomic.Pointer[[]*hook]

	mu     sync.Mutex
	closed bool
	told   sync.WaitGroup // outcomes that hooks are being told
}

// hook is one hook.
type hook struct {
	Config
	asker   asker
	slots   chan struct{} // has an element for each question under way
	waiting chan struct{} // has an element for each outcome that is to be told

	mu     sync.Mutex
	err    error // why the last question failed; nil if it did not
	since  time.Time
	failed int // in a row
}

// asker delivers one message.
type asker interface {
	// ask returns the answer to a message, which is empty if it needs none.
	ask(ctx context.Context, message []byte) (answer []byte, err error)
}

// maxWaiting is how many outcomes wait for one hook.
const maxWaiting = 256

// New returns the hooks, which passed Check.
func New(hooks []Config, log *slog.Logger) *Hooks {
	h := &Hooks{log: log}
	h.failed = ratelimit.NewDigest(ratelimit.DigestRules{First: 3, Window: time.Minute, Keys: maxHooks}, func(name string, count int, last string) {
		log.Warn(fmt.Sprintf("hook failed %d more times: %s", count, last), "hook", name)
	})
	h.current.Store(&[]*hook{})
	h.Replace(hooks)
	return h
}

// Replace replaces the hooks, which passed Check. It reports whether anything changed.
func (h *Hooks) Replace(hooks []Config) bool {
	before, changed := *h.current.Load(), false
	next := []*hook{}
	for i, c := range hooks {
		at := slices.IndexFunc(before, func(other *hook) bool { return reflect.DeepEqual(other.Config, c) })
		if changed = changed || at != i; at >= 0 {
			next = append(next, before[at])
			continue
		}
		next = append(next, &hook{Config: c, asker: newAsker(c), slots: make(chan struct{}, c.Parallel), waiting: make(chan struct{}, maxWaiting)})
	}
	changed = changed || len(before) != len(next)
	h.current.Store(&next)
	return changed
}

// matches reports whether a hook is about a call.
func (k *hook) matches(call *ferrule.Call) bool {
	id, effect := call.Target.Device.ID, call.Target.Tool.Effect
	if len(k.Effects) > 0 && !slices.Contains(k.Effects, effectOf(call.Operation, effect)) {
		return false
	}
	if id == ferrule.GatewayID {
		return slices.Contains(k.Devices, id)
	}
	return len(k.Devices) == 0 || slices.ContainsFunc(k.Devices, func(pattern string) bool {
		ok, err := path.Match(pattern, id)
		return ok && err == nil
	})
}

// effectOf returns the effect of a call. Without one, a tool changes something.
func effectOf(op ferrule.Operation, effect ferrule.Effect) ferrule.Effect {
	switch {
	case op != ferrule.CallTool:
		return ferrule.Reads
	case effect == "":
		return ferrule.Changes
	}
	return effect
}

// Before asks the hooks about a call, one after the other. It returns an error if one of
// them refuses it, or cannot be asked.
func (h *Hooks) Before(ctx context.Context, call *ferrule.Call) error {
	for _, k := range *h.current.Load() {
		if !k.Before || !k.matches(call) {
			continue
		}
		if err := h.before(ctx, k, call); err != nil {
			return err
		}
	}
	return nil
}

func (h *Hooks) before(ctx context.Context, k *hook, call *ferrule.Call) error {
	answer, err := h.question(ctx, k, call)
	switch {
	case ctx.Err() != nil:
		return ferrule.Errorf(ferrule.Cancelled, "%s of %s was cancelled while the hook %s was asked", call.Tool, call.Device, k.Name)
	case err != nil && k.AllowOnError:
		return nil
	case err != nil:
		return ferrule.Errorf(ferrule.Denied, "%s of %s is refused because the hook %s failed", call.Tool, call.Device, k.Name).
			WithHint("the owner of this gateway configured the hook, and finds the reason in the log and in `ferrule doctor`")
	case !answer.allow:
		return ferrule.Errorf(ferrule.Denied, "%s of %s is refused by the hook %s: %s", call.Tool, call.Device, k.Name, answer.reason).
			WithHint("the owner of this gateway configured the hook")
	}
	return nil
}

// question asks one hook about a call.
func (h *Hooks) question(ctx context.Context, k *hook, call *ferrule.Call) (answer, error) {
	text, err := newMessage(k.Name, phaseBefore, call).encode()
	if err != nil {
		return answer{}, h.note(k, err)
	}
	reply, err := k.send(ctx, text)
	if err != nil {
		if ctx.Err() != nil { // the caller is gone, which is not a failure of the hook
			return answer{}, err
		}
		return answer{}, h.note(k, err)
	}
	a, err := parseAnswer(reply)
	return a, h.note(k, err)
}

// send sends a message when it is its turn.
func (k *hook) send(ctx context.Context, text []byte) ([]byte, error) {
	limited, cancel := context.WithTimeoutCause(ctx, k.Timeout, fmt.Errorf("no answer within %v", k.Timeout))
	defer cancel()
	select {
	case k.slots <- struct{}{}:
		defer func() { <-k.slots }()
	case <-limited.Done():
		return nil, fmt.Errorf("it is busy: %w", context.Cause(limited))
	}
	reply, err := k.asker.ask(limited, text)
	if err != nil && limited.Err() != nil {
		return nil, context.Cause(limited)
	}
	return reply, err
}

// After tells the hooks how a call ended. It does not wait for them.
func (h *Hooks) After(call *ferrule.Call, took time.Duration, err error) {
	for _, k := range *h.current.Load() {
		if k.After && k.matches(call) {
			h.after(k, call, took, err)
		}
	}
}

func (h *Hooks) after(k *hook, call *ferrule.Call, took time.Duration, err error) {
	m := newMessage(k.Name, phaseAfter, call)
	m.setOutcome(took, err)
	text, err := m.encode()
	if err != nil {
		h.note(k, err)
		return
	}
	select {
	case k.waiting <- struct{}{}:
	default:
		h.note(k, fmt.Errorf("%d outcomes wait for it; another one is lost", maxWaiting))
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		<-k.waiting
		return
	}
	h.told.Go(func() {
		defer func() { <-k.waiting }()
		_, err := k.send(context.Background(), text)
		h.note(k, err)
	})
}

// note keeps and logs the error of a hook, and returns it.
func (h *Hooks) note(k *hook, err error) error {
	if err != nil {
		err = errors.New(ferrule.OneLine(ferrule.Clean(ferrule.MaskError(err).Error(), ferrule.MaxText), ferrule.MaxReason))
	}
	k.mu.Lock()
	switch {
	case err == nil:
		k.failed = 0
	case k.err == nil:
		k.since = time.Now()
	}
	if k.err = err; err != nil {
		k.failed++
	}
	k.mu.Unlock()
	if err != nil && h.failed.Alone(k.Name, err.Error()) {
		h.log.Warn("hook failed", "hook", k.Name, "err", err)
	}
	return err
}

// Problems says which hooks fail.
func (h *Hooks) Problems() (all []string) {
	for _, k := range *h.current.Load() {
		k.mu.Lock()
		if k.err != nil {
			effect := "calls are refused"
			if k.AllowOnError || !k.Before {
				effect = "calls go on"
			}
			all = append(all, fmt.Sprintf("hook %s fails since %s, and %s: %v", k.Name, ferrule.FormatTime(k.since), effect, k.err))
		}
		k.mu.Unlock()
	}
	return all
}

// Close waits until hooks have been told all outcomes.
func (h *Hooks) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.told.Wait()
	h.failed.Flush()
}
