package oauth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxForm is the longest form that is read.
const maxForm = 16 << 10

// verifiers matches a code_verifier.
var verifiers = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)

// tokens is a successful answer of the token endpoint.
type tokens struct {
	Access  string `json:"access_token"`
	Type    string `json:"token_type"`
	Expires int64  `json:"expires_in"`
	Refresh string `json:"refresh_token"`
	Scope   string `json:"scope"`

	heard <-chan struct{} // closed when other nodes accept them
}

// shareTime is how long an answer waits until other nodes accept the tokens.
const shareTime = time.Second

// client reads a form, and returns the client that sent it. If it is not right it answers,
// and returns "".
func (s *Server) client(w http.ResponseWriter, r *http.Request, event ferrule.AccessEvent) (id string, form url.Values) {
	refuse := func(status int, code, text string) {
		if !s.allow(tokenLimit, r) {
			tooMany(w)
			return
		}
		s.parts.Record(stranger, event, from(r), text, ferrule.Denied)
		answerError(w, status, code, text)
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		refuse(http.StatusBadRequest, "invalid_request", "the content type must be application/x-www-form-urlencoded")
		return "", nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
	if err == nil {
		form, err = single(string(body), maxForm)
	}
	if err != nil {
		refuse(http.StatusBadRequest, "invalid_request", err.Error())
		return "", nil
	}
	id, wrong := s.authenticate(r, form)
	if wrong != "" {
		if r.Header.Get("Authorization") != "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="ferrule"`)
		}
		refuse(http.StatusUnauthorized, "invalid_client", wrong)
		return "", nil
	}
	return id, form
}

func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	id, form := s.client(w, r, ferrule.AccessTokenAdded)
	if id == "" {
		return
	}
	device, err := s.parseResource(r, form.Get("resource"))
	if err != nil {
		answerError(w, http.StatusBadRequest, "invalid_target", err.Error())
		return
	}
	ask := tokenRequest{client: id, form: form, from: from(r), device: device}
	var given tokens
	var wrong *requestError
	switch form.Get("grant_type") {
	case "authorization_code":
		given, wrong = s.exchange(ask)
	case "refresh_token":
		given, wrong = s.renew(ask)
	default:
		wrong = &requestError{"unsupported_grant_type", "grant_type must be authorization_code or refresh_token"}
	}
	switch {
	case wrong == nil:
	case wrong.code == "server_error":
		answerError(w, http.StatusServiceUnavailable, wrong.code, wrong.text)
		return
	case !s.allow(tokenLimit, r):
		tooMany(w)
		return
	default:
		answerError(w, http.StatusBadRequest, wrong.code, wrong.text)
		return
	}
	if given.heard != nil {
		select {
		case <-given.heard:
		case <-time.After(shareTime):
		case <-r.Context().Done():
		}
	}
	answer(w, http.StatusOK, given)
}

// tokenRequest is a request for tokens by a client.
type tokenRequest struct {
	client string
	form   url.Values
	from   string
	device string // that the resource is for; empty for all, or if there is none
}

// exchange exchanges a code for tokens. A code is used up by the first attempt, also by one
// that fails: then somebody has it who should not.
func (s *Server) exchange(ask tokenRequest) (given tokens, wrong *requestError) {
	of := hashOf(ask.form.Get("code"))
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	c := s.codes[of]
	delete(s.codes, of)
	s.mu.Unlock()
	if c == nil {
		if g := s.used[of]; g != nil {
			s.parts.Record(g.agent(g.Scopes), ferrule.AccessTokenAdded, ask.from, "a code was used twice; it may be stolen", ferrule.Denied)
			s.revoke(g.agent(g.Scopes), g, ask.from, "its code was used twice")
		} else {
			s.parts.Record(stranger, ferrule.AccessTokenAdded, ask.from, "unknown code", ferrule.Denied)
		}
		return given, &requestError{"invalid_grant", "the code is unknown, or was used before"}
	}
	if wrong := c.check(ask); wrong != nil {
		s.parts.Record(stranger, ferrule.AccessTokenAdded, ask.from, c.client.label()+": "+wrong.text, ferrule.Denied)
		return given, wrong
	}
	s.usedNow(c.client.ID)
	g, accessToken, refreshToken, heard, err := s.add(c, of)
	if err != nil {
		return given, &requestError{"server_error", err.Error()}
	}
	s.parts.Record(g.agent(g.Scopes), ferrule.AccessTokenAdded, ask.from, "first tokens of "+g.id, "")
	return g.answer(accessToken, refreshToken, g.Access[0], heard), nil
}

// check returns why a client does not get tokens for a code.
func (c *code) check(ask tokenRequest) *requestError {
	redirect, sent := ask.form["redirect_uri"]
	verifier := ask.form.Get("code_verifier")
	sum := sha256.Sum256([]byte(verifier))
	challenge := base64.RawURLEncoding.EncodeToString(sum[:])
	switch {
	case time.Now().After(c.expires):
		return &requestError{"invalid_grant", "the code has expired"}
	case c.client.ID != ask.client:
		return &requestError{"invalid_grant", "the code is for another client"}
	case sent && redirect[0] != c.redirect, !sent && c.challenge == "":
		return &requestError{"invalid_grant", "redirect_uri is not the one that the code was sent to"}
	case c.challenge == "" && verifier != "":
		return &requestError{"invalid_grant", "there is a code_verifier, but the request had no code_challenge"}
	case c.challenge != "" && !verifiers.MatchString(verifier):
		return &requestError{"invalid_grant", "code_verifier must have 43 to 128 characters"}
	case c.challenge != "" && subtle.ConstantTimeCompare([]byte(challenge), []byte(c.challenge)) != 1:
		return &requestError{"invalid_grant", "code_verifier is wrong"}
	case ask.form.Get("resource") != "" && ask.device != c.Device:
		return &requestError{"invalid_target", "the code is for another resource"}
	}
	return nil
}

func (g *grant) answer(accessToken, refreshToken string, of issued, heard <-chan struct{}) tokens {
	scope := of.Scopes.Names()
	if g.Offline {
		scope = append(scope, offlineAccess)
	}
	return tokens{
		Access: accessToken, Type: "Bearer", Expires: int64(time.Until(of.Expires).Round(time.Second) / time.Second),
		Refresh: refreshToken, Scope: strings.Join(scope, " "), heard: heard,
	}
}

// renew exchanges a refresh token for new tokens.
func (s *Server) renew(ask tokenRequest) (given tokens, wrong *requestError) {
	s.changing.Lock()
	defer s.changing.Unlock()
	token := ask.form.Get("refresh_token")
	of := hashOf(token)
	now := time.Now()
	g := s.refresh[of]
	invalid := &requestError{"invalid_grant", "the refresh token is unknown, has expired, or was revoked; log in again"}
	if g == nil {
		if g = s.past[of.short()]; g != nil {
			return given, s.reused(g, ask)
		}
		s.parts.Record(stranger, ferrule.AccessTokenRotated, ask.from, "unknown refresh token", ferrule.Denied)
		return given, invalid
	}
	refuse := func(wrong *requestError, why string) (tokens, *requestError) {
		s.parts.Record(g.agent(g.Scopes), ferrule.AccessTokenRotated, ask.from, g.id+": "+why, ferrule.Denied)
		return tokens{}, wrong
	}
	switch {
	case g.Client != ask.client:
		return refuse(invalid, "another client has its refresh token")
	case now.After(g.Expires):
		return refuse(invalid, "its refresh token has expired")
	case ask.form.Get("resource") != "" && ask.device != g.Device:
		return refuse(&requestError{"invalid_target", "the grant is for another resource"}, "another resource was asked for")
	}
	scopes := g.Scopes
	if list := ask.form.Get("scope"); list != "" {
		asked, known := onlyScopes(list)
		if !known || !g.Scopes.Has(asked) {
			return refuse(&requestError{"invalid_scope", "the grant has only the scopes " + g.Scopes.String() + "; log in again for more"}, "more scopes were asked for")
		}
		scopes = g.Scopes.And(asked)
	}
	if of != g.Refresh {
		i := slices.IndexFunc(g.Recent, func(r rotation) bool { return r.Hash == of })
		if i < 0 || now.Sub(g.Recent[i].Time) > overlap {
			return given, s.reused(g, ask)
		}
		// Another process of the agent was first. Both get the same.
		accessToken, refreshToken := g.Recent[i].derive(token, accessPrefix), g.Recent[i].derive(token, refreshPrefix)
		if j := slices.IndexFunc(g.Access, func(one issued) bool { return one.Hash == hashOf(accessToken) }); j >= 0 {
			return g.answer(accessToken, refreshToken, g.Access[j], nil), nil
		}
		return refuse(invalid, "its tokens were replaced too often")
	}
	g, accessToken, refreshToken, heard, err := s.rotate(g, token, scopes)
	if err != nil {
		return given, &requestError{"server_error", err.Error()}
	}
	s.parts.Record(g.agent(scopes), ferrule.AccessTokenRotated, ask.from, g.id, "")
	return g.answer(accessToken, refreshToken, g.Access[len(g.Access)-1], heard), nil
}

// onlyScopes returns the scopes in a list, and reports whether it has no other ones.
func onlyScopes(list string) (ferrule.Scopes, bool) {
	names := slices.DeleteFunc(strings.Fields(list), func(name string) bool { return name == offlineAccess })
	scopes, err := ferrule.ParseScopes(names)
	return scopes, err == nil && len(names) > 0
}

// reused ends a grant, because a refresh token that was replaced is used again: there are
// two who have it. It is called with changing held.
func (s *Server) reused(g *grant, ask tokenRequest) *requestError {
	who := g.agent(g.Scopes)
	s.parts.Record(who, ferrule.AccessTokenRotated, ask.from, g.id+": a refresh token was used that had been replaced; it may be stolen", ferrule.Denied)
	s.revoke(who, g, ask.from, "its refresh token may be stolen")
	return &requestError{"invalid_grant", "the refresh token was used before; as it may be stolen, the login has ended. Log in again"}
}

// serveRevoke ends a token (RFC 7009). The answer does not say whether it was known.
func (s *Server) serveRevoke(w http.ResponseWriter, r *http.Request) {
	id, form := s.client(w, r, ferrule.AccessTokenRevoked)
	if id == "" {
		return
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	of := hashOf(form.Get("token"))
	if g := s.refresh[of]; g != nil && g.Client == id {
		s.revoke(g.agent(g.Scopes), g, from(r), "the program logged out")
	} else if a := s.access[of]; a != nil && a.grant.Client == id && !a.grant.foreign {
		g := a.grant
		stored := g.storedGrant
		stored.Access = slices.DeleteFunc(slices.Clone(g.Access), func(one issued) bool { return one.Hash == of })
		if _, _, err := s.save(g, stored); err != nil {
			answerError(w, http.StatusServiceUnavailable, "server_error", err.Error())
			return
		}
		s.parts.Record(a.who, ferrule.AccessTokenRevoked, from(r), fmt.Sprintf("an access token of %s, by the program", g.id), "")
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
}
