package issuer

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Login lets people log in at an issuer. The gateway is its client: an authorization code
// with PKCE.
//
//	Begin ─▶ the browser logs in there, and comes back ─▶ Code ─▶ Finish ─▶ Identity
//
// state, nonce and verifier are random texts, made for one login and kept with the browser
// that began it.
type Login struct{ issuer *Issuer }

// Identity is a person whom an issuer knows.
type Identity struct {
	// Issuer is the name of the issuer, and Subject identifies the person there, forever.
	Issuer, Subject string
	// Name is what people call the person; nothing may depend on it.
	Name string
	// Groups are the groups of the person, as they are called here.
	Groups []string
}

// Login returns how people log in at the issuer; nil if the owner has not registered the
// gateway there.
func (i *Issuer) Login() *Login {
	if i.cfg.ClientID == "" {
		return nil
	}
	return &Login{i}
}

// Name returns the name of the issuer.
func (l *Login) Name() string { return l.issuer.cfg.Name }

// Begin returns where to send the browser; empty if the issuer cannot be reached now.
// redirect is the address that it comes back to, which the issuer knows.
func (l *Login) Begin(redirect, state, nonce, verifier string) (url string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*fetchTimeout)
	defer cancel()
	found, err := l.issuer.keys.provider(ctx)
	if err != nil {
		return "" // it was logged
	}
	return l.client(found, redirect).AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier))
}

// client returns the client that the gateway is.
func (l *Login) client(found *provider, redirect string) *oauth2.Config {
	cfg := l.issuer.cfg
	client := &oauth2.Config{
		ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret.Reveal(), RedirectURL: redirect, Endpoint: found.Endpoint(), Scopes: []string{oidc.ScopeOpenID},
	}
	for _, scope := range []string{oidc.ScopeProfile, cfg.GroupsClaim} { // some issuers need them to say more
		if scope != "" && slices.Contains(found.Scopes, scope) {
			client.Scopes = append(client.Scopes, scope)
		}
	}
	// Chosen here: a library that tries both ways uses the code up with the first.
	client.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if cfg.ClientSecret == "" || len(found.AuthMethods) > 0 && !slices.Contains(found.AuthMethods, "client_secret_basic") {
		client.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return client
}

// Code returns the code that a browser came back with. The state must be the one that the
// browser left with, and the answer must be from this issuer: a browser that another issuer
// sends back must not make the gateway show its code to that one (mix-up).
func (l *Login) Code(ctx context.Context, answer url.Values, state string) (code string, err error) {
	for name, values := range answer {
		if len(values) > 1 {
			return "", fmt.Errorf("the answer has two of %q", ferrule.Clean(name, ferrule.MaxWord))
		}
	}
	if state == "" || subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(state)) != 1 {
		return "", errors.New("this browser did not begin the login; try again")
	}
	found, err := l.issuer.keys.provider(ctx)
	if err != nil {
		return "", err
	}
	if (answer.Has("iss") || found.NamesItself) && answer.Get("iss") != l.issuer.cfg.URL {
		return "", fmt.Errorf("the answer is not from the issuer %s", l.Name())
	}
	if answer.Has("error") {
		return "", fmt.Errorf("the issuer %s refused the login: %s", l.Name(), ferrule.Clean(strings.TrimSpace(answer.Get("error")+" "+answer.Get("error_description")), ferrule.MaxReason))
	}
	if code = answer.Get("code"); code == "" {
		return "", errors.New("the answer has no code")
	}
	return code, nil
}

// Finish returns the person who logged in. The arguments are those of Begin, and the code of
// the answer. The error contains no secret.
func (l *Login) Finish(ctx context.Context, code, redirect, nonce, verifier string) (id Identity, err error) {
	keys, cfg := l.issuer.keys, l.issuer.cfg
	found, err := keys.provider(ctx)
	if err != nil {
		return id, err
	}
	tokens, err := l.client(found, redirect).Exchange(oidc.ClientContext(ctx, l.issuer.client), code, oauth2.VerifierOption(verifier))
	if err != nil {
		var refused *oauth2.RetrieveError
		if errors.As(err, &refused) { // its text has the whole response
			return id, fmt.Errorf("the issuer %s refused the code: %s", cfg.Name, ferrule.Clean(strings.TrimSpace(refused.ErrorCode+" "+refused.ErrorDescription), ferrule.MaxReason))
		}
		return id, fmt.Errorf("the issuer %s did not answer: %s", cfg.Name, ferrule.Clean(err.Error(), ferrule.MaxReason))
	}
	text, _ := tokens.Extra("id_token").(string)
	if text == "" || len(text) > maxToken {
		return id, fmt.Errorf("the issuer %s gave no ID token, or one that is too long", cfg.Name)
	}
	said, err := l.idToken(ctx, text)
	if err != nil {
		return id, fmt.Errorf("the ID token of the issuer %s: %w", cfg.Name, err)
	}
	if nonce == "" || subtle.ConstantTimeCompare([]byte(said.nonce), []byte(nonce)) != 1 {
		return id, fmt.Errorf("the ID token of the issuer %s is for another login", cfg.Name)
	}
	if _, ok := l.issuer.name(said.subject); !ok {
		return id, fmt.Errorf("the ID token of the issuer %s has no subject, or one that is too long", cfg.Name)
	}
	return Identity{Issuer: cfg.Name, Subject: said.subject, Name: said.name, Groups: l.issuer.groups(said.groups)}, nil
}

// idToken returns the claims of an ID token that is for the gateway.
func (l *Login) idToken(ctx context.Context, text string) (c claims, err error) {
	cfg := l.issuer.cfg
	var names []string
	for _, algorithm := range algorithms {
		names = append(names, string(algorithm))
	}
	token, err := oidc.NewVerifier(cfg.URL, l.issuer.keys, &oidc.Config{ClientID: cfg.ClientID, SupportedSigningAlgs: names}).Verify(ctx, text)
	if err != nil {
		return c, errors.New(ferrule.Clean(err.Error(), ferrule.MaxReason))
	}
	// The library reads names in any case, and of two claims the last one.
	var payload json.RawMessage
	if err := token.Claims(&payload); err != nil {
		return c, err
	}
	if c, err = parseClaims(payload, cfg.GroupsClaim); err != nil {
		return c, err
	}
	switch {
	case c.issuer != cfg.URL || !slices.Contains(c.audience, cfg.ClientID) || c.expires.IsZero():
		return c, errors.New("it is not for this gateway")
	case (len(c.audience) > 1 || c.party != "") && c.party != cfg.ClientID:
		return c, errors.New("it is for another program")
	}
	for _, name := range []string{"name", "preferred_username", "email"} {
		if decode(c.has, name, &c.name) == nil && c.name != "" {
			break
		}
	}
	c.name = ferrule.Clean(c.name, ferrule.MaxWord)
	return c, nil
}
