package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// The SDK's own check of tokens answers without an error code, has the same scopes for all
// addresses, and judges scopes before expiry, so agents could not recover by themselves.

// maxToken is the limit of a token, in bytes.
const maxToken = 8 << 10

// askFor are the scopes that an agent without a token is told to ask for. A person may grant
// less, and the agent can ask for more when it needs that.
var askFor = ferrule.LimitTo(ferrule.ScopeChange)

// refusal is why a request is not served, in the terms of RFC 6750.
type refusal struct {
	status int
	code   string         // empty if no token came
	scopes ferrule.Scopes // to ask for
	text   string         // for people
}

// Protected requires a token with a scope, and refuses pages of other sites. It does so
// before a response can say what exists here.
func (s *Server) Protected(needs ferrule.Scopes, next http.Handler) http.Handler {
	known := withTokenInfo(next)
	// Streams stay open, and what they have on the stack is multiplied by all agents: so this is
	// one handler that calls functions, and not a handler in a handler for each of them.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // unless it is accepted
		if !mcphttp.Guarded(w, r, s.checkHost) {
			return
		}
		if valid, open := s.openTo(r); open {
			accept(w, r)
			serveWhile(valid, next, w, r)
		} else if valid, r := s.identified(w, r, needs); r != nil {
			accept(w, r)
			serveWhile(valid, known, w, r)
		}
	})
}

// identified returns a request with its principal, and a context that ends when the principal is
// no longer accepted. The request is nil if it was refused.
func (s *Server) identified(w http.ResponseWriter, r *http.Request, needs ferrule.Scopes) (valid context.Context, known *http.Request) {
	c, refused := s.authenticate(r, needs)
	if refused != nil {
		s.refuse(w, r, refused)
		return nil, nil
	}
	// A session belongs to its principal, whatever token it has now, and to the devices
	// of that token: another one could reach more through the session, such as what it
	// has subscribed to.
	var who any = c.Who
	reach := c.Device
	if reach == "" {
		reach = "of " + c.Who.Devices
	}
	info := &sdkauth.TokenInfo{UserID: c.Who.String() + " " + reach, Extra: map[string]any{whoExtra: who}}
	ctx := context.WithValue(context.WithValue(r.Context(), callerKey{}, who), tokenInfoKey{}, info)
	return c.Valid, r.WithContext(ctx)
}

// whoExtra is the key of the principal in the SDK's TokenInfo.
const whoExtra = "who"

// tokenInfoKey is the context key of what the SDK is told about a token.
type tokenInfoKey struct{}

// withTokenInfo tells the SDK who calls. Only its own check of tokens can do that.
func withTokenInfo(next http.Handler) http.Handler {
	known := func(ctx context.Context, _ string, _ *http.Request) (*sdkauth.TokenInfo, error) {
		info, _ := ctx.Value(tokenInfoKey{}).(*sdkauth.TokenInfo)
		return info, nil
	}
	return sdkauth.RequireBearerToken(known, &sdkauth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
}

// authenticate returns the credential of a request that has a scope, or why it is refused.
func (s *Server) authenticate(r *http.Request, needs ferrule.Scopes) (c identity.Credential, refused *refusal) {
	token, refused := bearerToken(r)
	if refused != nil {
		if refused.text == noToken {
			refused.text = s.noTokenText(r, needs)
			if !s.canLogIn(r) { // otherwise it is how each login begins
				s.recordRefused(r, c.Who, "no token was sent")
			}
		}
		return c, refused
	}
	path, device := resourceOf(r.URL.Path)
	about := identity.Request{From: mcphttp.Hostname(r.RemoteAddr), Time: time.Now()}
	if s.parts.URL != "" || s.isOwn(r) {
		about.Resource = mcphttp.Origin(s.parts.URL, r) + path
	}
	c, err := s.parts.Verify(r.Context(), token, about)
	if err == nil && c.Device != "" && c.Device != device {
		err = identity.ErrAudience
	}
	again := " Use another token"
	if s.canLogIn(r) {
		again += ", or log in again"
	}
	switch tooMany := s.wrongToken(r, c, err); {
	case tooMany:
		return c, &refusal{http.StatusTooManyRequests, "invalid_token", 0, tooManyWrong}
	case errors.Is(err, identity.ErrUnknown):
		return c, &refusal{http.StatusUnauthorized, "invalid_token", askFor,
			"the token is wrong, or was revoked; nothing was called." + again + ". The owner of this gateway creates tokens with " + addCommand(needs)}
	case errors.Is(err, identity.ErrExpired):
		return c, &refusal{http.StatusUnauthorized, "invalid_token", askFor, "the token has expired; nothing was called." + again + ". The owner of this gateway creates tokens with " + addCommand(needs)}
	case errors.Is(err, identity.ErrAudience):
		return c, &refusal{http.StatusUnauthorized, "invalid_token", askFor, "the token was made for another address, so it is not accepted here; nothing was called. Log in again at this address. If it is the right one, the owner of this gateway can set auth.url to it"}
	case err != nil:
		s.parts.Log.Debug("token not checked", "err", err)
		return c, &refusal{http.StatusServiceUnavailable, "", 0, "the gateway cannot check the token now, because it cannot reach the issuer; nothing was called. Try again in a few seconds"}
	case !c.Who.Scopes.Has(needs):
		text := "this address needs a token with the scope " + needs.String()
		s.recordRefused(r, c.Who, text)
		if needs == ferrule.ScopeMetrics { // agents can step up to the others
			text += ". To make one, run " + addCommand(needs)
		}
		return c, &refusal{http.StatusForbidden, "insufficient_scope", ferrule.LimitTo(needs | c.Who.Scopes), text}
	}
	if c.Device != "" {
		if id := s.currentID(c.Device); c.Who.Reaches(&ferrule.Device{ID: id}) {
			c.Who.Devices = id // the address hides other devices, and the pipeline must refuse them
		}
	}
	return c, nil
}

// isOwn reports whether the Host of a request is certainly an address of this gateway: a name
// of this machine on a loopback address, the address itself, or one of Config.Hosts.
// Otherwise a caller could choose an address for which it has somebody's token, such as that
// of another server on this machine: so the port must be right too. A proxy that serves the
// gateway under a name may have the usual ports.
func (s *Server) isOwn(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	address := local.String()
	_, own, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	port := portOf(r)
	if s.isHost(r.Host) && (port == "80" || port == "443") {
		return true
	}
	return port == own && (isLoopback(address) && isLoopback(r.Host) || mcphttp.Hostname(address) == mcphttp.Hostname(r.Host) || s.isHost(r.Host))
}

// portOf returns the port in the Host of a request, or the one that its scheme has.
func portOf(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil && port != "" {
		return port
	}
	if r.TLS != nil {
		return "443"
	}
	return "80"
}

// bearerToken returns the token of a request. A token in the URL is ignored: it would get
// into logs and histories.
func bearerToken(r *http.Request) (token string, refused *refusal) {
	all := r.Header["Authorization"]
	var scheme string
	if len(all) > 0 {
		scheme, token, _ = strings.Cut(strings.TrimSpace(all[0]), " ")
	}
	token = strings.TrimSpace(token)
	switch {
	case !strings.EqualFold(scheme, "Bearer") && scheme != "" && token == "":
		return "", &refusal{http.StatusUnauthorized, "", askFor, noBearer}
	case !strings.EqualFold(scheme, "Bearer"):
		return "", &refusal{http.StatusUnauthorized, "", askFor, noToken}
	case len(all) != 1 || token == "" || len(token) > maxToken || strings.ContainsFunc(token, unicode.IsSpace):
		return "", &refusal{http.StatusBadRequest, "invalid_request", 0,
			"the header Authorization must be `Bearer TOKEN`, with one token. If the token comes from a variable, check that it is set"}
	}
	return token, nil
}

// resourceOf returns the path of the protected resource that a request is for, and its
// device; the device is empty for the whole fleet.
func resourceOf(path string) (resource, device string) {
	const fleet, devices = "/mcp", "/mcp/devices/"
	if device, ok := strings.CutPrefix(path, devices); ok && device != "" && !strings.Contains(device, "/") {
		return path, device
	}
	return fleet, ""
}

// refuse answers a request that is not served. The header says what a program can do about
// it, and the body what a person can do.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, why *refusal) {
	s.challenge(w.Header(), r, why)
	http.Error(w, why.text, why.status)
}

// challenge adds the headers of a refusal.
func (s *Server) challenge(h http.Header, r *http.Request, why *refusal) {
	switch why.status {
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "5")
		return
	case http.StatusTooManyRequests:
		h.Set("Retry-After", wrongWait)
		return
	}
	var params []string
	add := func(name, value string) { params = append(params, name+`="`+strings.Map(quotable, value)+`"`) }
	if why.code != "" {
		add("error", why.code)
	}
	if why.scopes != 0 && s.canLogIn(r) {
		path, _ := resourceOf(r.URL.Path)
		add("scope", why.scopes.String())
		add("resource_metadata", mcphttp.Origin(s.parts.URL, r)+MetadataPath+path+profileQuery(r.URL))
	}
	if why.status == http.StatusForbidden {
		add("error_description", why.text)
	}
	h.Set("WWW-Authenticate", strings.TrimSpace("Bearer "+strings.Join(params, ", ")))
}

// quotable replaces what must not be in a parameter of the header WWW-Authenticate.
func quotable(c rune) rune {
	if c < ' ' || c > '~' || c == '"' || c == '\\' {
		return '_'
	}
	return c
}
