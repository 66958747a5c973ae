package server

import (
	"errors"
	"net/http"
	"net/netip"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// wrongRate is how many wrong tokens of a host get the usual response, which tells an agent
// how to get a valid one. More are told to wait. Nothing waits in the gateway: a response
// that is held back holds a connection too. A valid token is always accepted at once,
// because others may share the address, for example behind a proxy.
var wrongRate = ratelimit.PerMinute(60)

// maxWrongHosts is the limit of hosts that are told apart.
const maxWrongHosts = 1024

func newWrongTokens() *ratelimit.Keyed[netip.Prefix] {
	return ratelimit.NewKeyed[netip.Prefix](wrongRate, maxWrongHosts)
}

// wrongWait is how many seconds the sender of too many wrong tokens is told to wait.
const wrongWait = "60"

// tooManyWrong is the response to the sender of too many wrong tokens.
const tooManyWrong = "too many wrong tokens from this address; nothing was called. Correct the token: a valid one is accepted at once"

// wrongToken records a token that was not accepted because of err, which is nil for one that
// was. It reports whether its host has sent too many wrong ones.
func (s *Server) wrongToken(r *http.Request, c identity.Credential, err error) bool {
	unknown := errors.Is(err, identity.ErrUnknown)
	if !unknown && !errors.Is(err, identity.ErrExpired) && !errors.Is(err, identity.ErrAudience) {
		return false
	}
	s.recordRefused(r, c.Who, err.Error())
	// Who has or had a real one must learn that it needs another.
	return unknown && s.wrong.Take(mcphttp.HostOf(r.RemoteAddr), time.Now()) > 0
}

// recordRefused records that a token was not accepted, or that it permits too little. Who is
// zero if it is not known.
func (s *Server) recordRefused(r *http.Request, who ferrule.Principal, message string) {
	if s.parts.Record != nil {
		s.parts.Record(who, ferrule.AccessTokenUsed, r.RemoteAddr, message, ferrule.Denied)
	}
}
