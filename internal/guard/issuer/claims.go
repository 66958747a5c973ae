package issuer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// claims are what a token says.
type claims struct {
	issuer, subject    string
	audience           []string
	expires, notBefore time.Time // zero if it does not say
	scopes, groups     []string
	nonce, party       string // party is azp, the client that an ID token is for
	name               string // of a person, for people
	has                map[string]json.RawMessage
}

// parseClaims decodes claims, whose signature may not be checked yet. Names are compared
// exactly, and none may come twice: the issuer and this package would read different ones.
func parseClaims(payload []byte, groupsClaim string) (c claims, err error) {
	if err := strictjson.Check(payload); err != nil {
		return c, err
	}
	if err := json.Unmarshal(payload, &c.has); err != nil || c.has == nil {
		return c, errors.New("its claims are not an object")
	}
	for _, claim := range []struct {
		name string
		into *string
	}{{"iss", &c.issuer}, {"sub", &c.subject}, {"nonce", &c.nonce}, {"azp", &c.party}} {
		if *claim.into, err = c.text(claim.name); err != nil {
			return c, err
		}
	}
	if c.expires, err = c.time("exp"); err != nil {
		return c, err
	}
	if c.notBefore, err = c.time("nbf"); err != nil {
		return c, err
	}
	if c.audience, err = c.list("aud"); err != nil {
		return c, err
	}
	for _, name := range []string{"scope", "scp"} { // a text with spaces, or a list
		words, err := c.list(name)
		if err != nil {
			return c, err
		}
		for _, word := range words {
			c.scopes = append(c.scopes, strings.Fields(word)...)
		}
	}
	if groupsClaim == "" {
		return c, nil
	}
	var elsewhere map[string]json.RawMessage
	if err := decode(c.has, "_claim_names", &elsewhere); err != nil {
		return c, err
	}
	if _, ok := elsewhere[groupsClaim]; ok {
		return c, errors.New("its issuer left out the groups, because there are too many")
	}
	c.groups, err = c.list(groupsClaim)
	return c, err
}

// decode decodes a claim, if there is one. null counts as none.
func decode[T any](has map[string]json.RawMessage, name string, into *T) error {
	raw, ok := has[name]
	if !ok || string(raw) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("its claim %.64q has the wrong type", name)
	}
	return nil
}

// text returns a claim that is a text. Most have nothing to decode, which takes long.
func (c claims) text(name string) (text string, err error) {
	if raw := c.has[name]; isText(raw) && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	err = decode(c.has, name, &text)
	return text, err
}

func isText(raw json.RawMessage) bool { return len(raw) > 1 && raw[0] == '"' }

// list returns a claim that is a text or a list of texts.
func (c claims) list(name string) (all []string, err error) {
	if isText(c.has[name]) {
		text, err := c.text(name)
		return []string{text}, err
	}
	var texts []*string
	if err := decode(c.has, name, &texts); err != nil {
		return nil, err
	}
	for _, text := range texts {
		if text == nil {
			return nil, fmt.Errorf("its claim %.64q has the wrong type", name)
		}
		all = append(all, *text)
	}
	return all, nil
}

// lastSecond is the end of the last year that can be written with four digits.
const lastSecond = 253402300799

// time returns a claim that is in seconds, which need not be whole.
func (c claims) time(name string) (t time.Time, err error) {
	var seconds *float64
	if err := decode(c.has, name, &seconds); err != nil || seconds == nil {
		return t, err
	}
	if *seconds < 1 || *seconds > lastSecond || math.IsNaN(*seconds) {
		return t, fmt.Errorf("its claim %q is not a time", name)
	}
	return time.Unix(int64(*seconds), 0), nil
}

// isAccessToken returns an error for a token that was not made to be shown to a server, or
// that another program must not use. typ is that of its header.
func (c claims) isAccessToken(typ string) error {
	if c.has["cnf"] != nil {
		return errors.New("it is bound to a key of the caller (DPoP or mTLS), which is not supported")
	}
	typ, _ = strings.CutPrefix(strings.ToLower(typ), "application/")
	switch typ {
	case "at+jwt":
		return nil
	case "", "jwt":
	default:
		return errors.New("it is not an access token")
	}
	// Issuers without that type. These claims are only in ID tokens, which say who logged in
	// at a program, and permit nothing.
	idToken := slices.ContainsFunc([]string{"nonce", "at_hash", "c_hash", "s_hash"}, func(name string) bool { return c.has[name] != nil })
	if idToken || string(c.has["typ"]) == `"ID"` {
		return errors.New("it is an ID token; agents must send their access token")
	}
	return nil
}
