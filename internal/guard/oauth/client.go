package oauth

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// client is a program that asks people to let it in.
type client struct {
	ID        string    `json:"id"`
	Name      string    `json:"name,omitempty"` // that it gives itself
	Redirects []string  `json:"redirects"`
	Created   time.Time `json:"created"`
	// Used is when somebody last let it in; zero if nobody did.
	Used time.Time `json:"used,omitzero"`

	host         string // of its document; empty if it has none
	secret       hash
	confidential bool // it has a secret
}

// Limits of programs that register themselves.
const (
	maxClients = 512
	// unusedTTL is how long a program that nobody let in is kept.
	unusedTTL = 24 * time.Hour
	// usedTTL is how long one is kept without a grant: it does not know that it must register
	// again.
	usedTTL = 90 * 24 * time.Hour
	// minAge protects a program that somebody may be about to let in, when there are too many.
	minAge = 10 * time.Minute

	maxRedirects    = 16
	maxRegistration = 16 << 10
	maxName         = 64
)

// stranger is a program that nobody has let in yet.
var stranger = ferrule.Principal{Role: ferrule.Unverified, Name: "oauth"}

var errNoClient = errors.New("the program is not known here; it may have been removed because nobody let it in. Remove the login in that program, then log in again")

// find returns the client with an ID. It fetches the document of a client that has one;
// unless fetch is set it only checks the address, and returns no client.
func (s *Server) find(ctx context.Context, id string, fetch bool) (*client, error) {
	if strings.Contains(id, ":") {
		switch {
		case !s.parts.Config.Documents:
			return nil, errors.New("this gateway does not fetch documents of programs; auth.server.documents is false")
		case !fetch:
			return nil, checkDocumentURL(id)
		}
		return s.fetch.get(ctx, id)
	}
	if c := s.fixed[id]; c != nil {
		return c, nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c := s.clients[id]; c != nil {
		return c, nil
	}
	return nil, errNoClient
}

// label is how a client is called in the names of callers. Anybody can register any name, so
// such a name is told apart by the ID; a host cannot be claimed.
func (c *client) label() string {
	if c.host != "" {
		return ferrule.Slug(c.host)
	}
	if c.confidential {
		return ferrule.Slug(c.ID)
	}
	sum := sha256.Sum256([]byte(c.ID))
	name := cmp.Or(ferrule.Slug(c.Name), "agent")
	return strings.Trim(name[:min(len(name), 24)], "-") + "-" + hex.EncodeToString(sum[:3])
}

// until returns when a client without a grant is removed.
func (c *client) until() time.Time {
	if c.Used.IsZero() {
		return c.Created.Add(unusedTTL)
	}
	return c.Used.Add(usedTTL)
}

// usedNow notes that somebody let a client in. It is called with changing held.
func (s *Server) usedNow(id string) {
	c := s.clients[id]
	if c == nil {
		return
	}
	next := *c
	next.Used = time.Now().UTC()
	if err := s.file.Put(clientPrefix+id, next); err != nil {
		s.parts.Log.Error("the use of a program cannot be stored", "err", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[id] = &next
}

// registration is what a program says about itself (RFC 7591).
type registration struct {
	Redirects []string `json:"redirect_uris"`
	Name      string   `json:"client_name,omitempty"`
	Grants    []string `json:"grant_types"`
	Responses []string `json:"response_types"`
	Scope     string   `json:"scope,omitempty"`
	Method    string   `json:"token_endpoint_auth_method"`
}

// registrationError is an error of RFC 7591.
type registrationError struct{ code, text string }

func (e *registrationError) Error() string { return e.text }

// parseRegistration reads a registration. All programs that register themselves are public,
// so a request for a secret is ignored.
func parseRegistration(data []byte) (r registration, err error) {
	invalid := &registrationError{"invalid_client_metadata", "the registration must be a JSON object with redirect_uris"}
	members, err := object(data)
	if err != nil {
		return r, invalid
	}
	for name, to := range map[string]any{
		"redirect_uris": &r.Redirects, "client_name": &r.Name, "grant_types": &r.Grants, "response_types": &r.Responses, "scope": &r.Scope,
	} {
		if value, ok := members[name]; ok && json.Unmarshal(value, to) != nil {
			invalid.text = name + " has the wrong type"
			return r, invalid
		}
	}
	if len(r.Redirects) == 0 || len(r.Redirects) > maxRedirects {
		return r, &registrationError{"invalid_redirect_uri", "redirect_uris must have 1 to 16 addresses"}
	}
	for _, uri := range r.Redirects {
		if err := checkRedirect(uri); err != nil {
			return r, &registrationError{"invalid_redirect_uri", err.Error()}
		}
	}
	if len(r.Scope) > 1000 {
		invalid.text = "scope has more than 1000 characters"
		return r, invalid
	}
	r.Name = ferrule.Clean(r.Name, maxName)
	r.Method = "none"
	r.Grants = onlyOf(r.Grants, grantTypes)
	r.Responses = onlyOf(r.Responses, responseTypes)
	return r, nil
}

// onlyOf returns those that are supported, or all if there are none.
func onlyOf(asked, supported []string) []string {
	asked = slices.DeleteFunc(asked, func(one string) bool { return !slices.Contains(supported, one) })
	if len(asked) == 0 || len(asked) > len(supported) {
		return supported
	}
	return asked
}

// object reads a JSON object. Unlike a struct, its members keep the case of their names.
func object(data []byte) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	if members == nil {
		return nil, errors.New("not an object")
	}
	return members, nil
}

func (s *Server) serveRegister(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, code, text string) {
		s.parts.Record(stranger, ferrule.AccessClientAdded, from(r), text, ferrule.Denied)
		answerError(w, status, code, text)
	}
	if !s.parts.Config.Register {
		refuse(http.StatusForbidden, "access_denied", "programs cannot register themselves here; the owner can add them to auth.server.clients")
		return
	}
	if !s.allow(registerLimit, r) {
		tooMany(w)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRegistration))
	if err != nil {
		refuse(http.StatusRequestEntityTooLarge, "invalid_client_metadata", "the registration is too long")
		return
	}
	asked, err := parseRegistration(body)
	var invalid *registrationError
	if errors.As(err, &invalid) {
		refuse(http.StatusBadRequest, invalid.code, invalid.text)
		return
	}
	c := &client{ID: "ferd_" + rand.Text(), Name: asked.Name, Redirects: asked.Redirects, Created: time.Now()}
	if err := s.addClient(c); err != nil {
		refuse(http.StatusServiceUnavailable, "temporarily_unavailable", err.Error())
		return
	}
	s.parts.Record(stranger, ferrule.AccessClientAdded, from(r), "registered itself as "+c.label(), "")
	// What was asked is echoed: some programs refuse less.
	answer(w, http.StatusCreated, struct {
		ID     string `json:"client_id"`
		Issued int64  `json:"client_id_issued_at"`
		registration
	}{c.ID, c.Created.Unix(), asked})
}

// addClient stores a client. If there are too many, the oldest that nobody let in goes.
func (s *Server) addClient(c *client) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if len(s.clients) >= maxClients {
		oldest := s.oldestClient()
		if oldest == nil {
			return errors.New("too many programs have registered; try again in 10 minutes")
		}
		s.dropClient(oldest.ID)
	}
	if err := s.file.Put(clientPrefix+c.ID, c); err != nil {
		s.parts.Log.Error("a program cannot be registered", "err", err)
		return errors.New("the gateway cannot store the registration; see its log")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[c.ID] = c
	return nil
}

// oldestClient returns the client that is missed least, or nil. One that somebody let in once
// goes only if there are no others, however many register. It is called with changing held.
func (s *Server) oldestClient() (oldest *client) {
	now, needed := time.Now(), s.neededClients()
	for _, c := range s.clients {
		if !needed[c.ID] && (oldest == nil || cmp.Or(c.Used.Compare(oldest.Used), c.Created.Compare(oldest.Created)) < 0) {
			oldest = c
		}
	}
	if oldest == nil || now.Sub(oldest.Created) < minAge {
		return nil
	}
	return oldest
}

// neededClients returns the IDs of clients that have a grant or a code. It is called with
// changing held.
func (s *Server) neededClients() map[string]bool {
	needed := make(map[string]bool)
	for _, g := range s.grants {
		needed[g.Client] = true
	}
	for _, c := range s.codes {
		needed[c.client.ID] = true
	}
	return needed
}

// dropClient is called with changing held.
func (s *Server) dropClient(id string) {
	s.mu.Lock()
	delete(s.clients, id)
	s.mu.Unlock()
	if err := s.file.Delete(clientPrefix + id); err != nil {
		s.parts.Log.Error("a program cannot be removed; it comes back after a restart", "err", err)
	}
}

// authenticate returns the ID of the client that sent a form, and reports whether it may
// have it: one with a secret must show it. The text is for the answer.
func (s *Server) authenticate(r *http.Request, form url.Values) (id, text string) {
	id, secret := form.Get("client_id"), form.Get("client_secret")
	if name, password, ok := r.BasicAuth(); ok {
		if secret != "" {
			return "", "send the client's secret in the header or in the body, not in both"
		}
		name, err1 := url.QueryUnescape(name)
		password, err2 := url.QueryUnescape(password)
		if err1 != nil || err2 != nil || id != "" && id != name {
			return "", "the header and the body name different clients"
		}
		id, secret = name, password
	}
	if id == "" {
		return "", "client_id is missing"
	}
	if c := s.fixed[id]; c != nil {
		if !hashOf(secret).equals(c.secret) {
			return "", "the client's secret is wrong"
		}
		return id, ""
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case secret != "":
		return "", "this client has no secret"
	case strings.Contains(id, ":") || s.clients[id] != nil:
		return id, ""
	}
	return "", "unknown client; register again"
}

// newSecret returns a random secret with a prefix that says what it is for.
func newSecret(prefix string) string {
	var b [32]byte
	rand.Read(b[:])
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}
