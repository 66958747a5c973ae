package telemetry

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Limits of the label caller. Agents can invent names, so those that name themselves have a
// limit of their own: they cannot take the place of others.
const (
	maxCallers   = 256
	maxSelfNamed = 32
)

// callers counts the calls of each agent and person. Above the limits, agents that name
// themselves are counted by account, and others together.
type callers struct {
	mu        sync.RWMutex
	known     map[ferrule.Principal]*atomic.Uint64
	selfNamed int
}

// add counts a call. The gateway's own calls are not counted here.
func (c *callers) add(who ferrule.Principal) {
	if who.Role == ferrule.Gateway {
		return
	}
	who.User = "" // part of the name, if it is another user than the gateway's
	who.Scopes, who.Devices, who.Groups, who.TokenID = 0, "", "", ""
	c.mu.RLock()
	count := c.known[who]
	c.mu.RUnlock()
	if count == nil {
		count = c.counter(who)
	}
	count.Add(1)
}

// counter returns the counter of a caller that had none.
func (c *callers) counter(who ferrule.Principal) *atomic.Uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = make(map[ferrule.Principal]*atomic.Uint64)
	}
	account := who.Account()
	if account != who && c.known[who] == nil {
		if c.selfNamed >= maxSelfNamed {
			who = account
		} else {
			c.selfNamed++
		}
	}
	if c.known[who] == nil && len(c.known) >= maxCallers {
		who = ferrule.Principal{Role: other}
	}
	if c.known[who] == nil {
		c.known[who] = &atomic.Uint64{}
	}
	return c.known[who]
}

// each calls fn for every caller.
func (c *callers) each(fn func(count uint64, caller, auth string)) {
	type labels struct{ caller, auth string }
	sums := make(map[labels]uint64)
	c.mu.RLock()
	for who, count := range c.known {
		one := labels{strings.TrimSuffix(ferrule.Clean(who.String(), ferrule.MaxWord), ":"), authName(who.Auth)}
		sums[one] += count.Load() // names that differ may be equal when they are clean
	}
	c.mu.RUnlock()
	for one, sum := range sums {
		fn(sum, one.caller, one.auth)
	}
}

// auths are the values of the label auth.
var auths = []ferrule.Auth{
	ferrule.AuthToken, ferrule.AuthLoopback, ferrule.AuthSocket, ferrule.AuthStdio, ferrule.AuthEndpoint, ferrule.AuthLink,
	ferrule.AuthOAuth, ferrule.AuthIssuer, ferrule.AuthLogin,
}

// authName returns the label of a way of authentication.
func authName(a ferrule.Auth) string {
	if slices.Contains(auths, a) {
		return string(a)
	}
	return other
}
