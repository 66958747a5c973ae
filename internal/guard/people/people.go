// Package people knows the people who use the gateway with a browser: their roles, how
// they log in, and their sessions.
//
//	ferrule people add ─▶ record ─▶ file, other nodes
//	ferrule login ─▶ one-time link ─┐
//	external issuer ─▶ callback ────┴─▶ session ─▶ cookie
//	page ─▶ Session ─▶ Principal, CSRF token
//
// A record has a version, which grows with each change. A session is good for the version
// that it began with: so it ends when its person is removed, gets another role or is
// logged out, on every node that hears of it. A person who is removed leaves a record
// without a role, so that a node that was away cannot bring the person back.
//
// Links and sessions are kept in memory, as hashes. A restart ends them.
package people

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/records"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Parts is what people need.
type Parts struct {
	// File has the records.
	File string
	// Shared has the records of all nodes; nil if there are no others.
	Shared records.Synced
	// Origin returns the URL under which a browser reaches the gateway, without a path.
	Origin func(*http.Request) string
	// URL returns the URL that login links begin with. The error says why nobody can log in.
	URL func() (string, error)
	// Issuers returns the external issuers that people can log in through; it may be nil.
	Issuers func() []Issuer
	// Changed is called when a person was removed or logged out, or has got another role. It
	// ends what the person has permitted, and returns how much that was. If another node made
	// the change, it ends only what was permitted here, as every node does. It may be nil, and
	// must not call back.
	Changed func(name string, elsewhere bool) (ended int)
	// Record records who was let in, and who was not.
	Record func(who ferrule.Principal, event ferrule.AccessEvent, from, message string, refused ferrule.Code)
	// Frame writes a page with a title and a body; nil writes only the body.
	Frame func(w io.Writer, title string, body template.HTML) error
	Log   *slog.Logger
}

// Limits.
const (
	// maxPeople limits the records, including those of people who were removed.
	maxPeople = 1000
	// removedAge is how long the record of a removed person is kept.
	removedAge = 30 * 24 * time.Hour
	maxName    = 300
)

// People has the people of a gateway.
type People struct {
	parts Parts
	mux   http.Handler
	key   []byte // of what this run signs
	file  *records.File

	changing sync.Mutex // orders changes of records; taken before mu

	mu       sync.Mutex
	known    map[string]record    // by name
	logins   map[string]time.Time // the last of each person, by name
	heard    map[string]int64     // versions that other nodes know, by key
	links    map[[sha256.Size]byte]*link
	sessions map[[sha256.Size]byte]*session
	attempts *ratelimit.Keyed[netip.Prefix] // that failed, by address
	asks     *ratelimit.Keyed[netip.Prefix] // of issuers, by address
}

// record is a person as it is stored.
type record struct {
	Name string `json:"name"`
	// Role is empty for somebody who may not log in by this name.
	Role ferrule.PersonRole `json:"role,omitempty"`
	// Version is the time of the last change in microseconds, or more.
	Version int64 `json:"version"`
}

// key returns the key of the record. A name can have characters that a key cannot.
func (r record) key() string { return keyOf(r.Name) }

func keyOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// replaces reports whether r counts instead of another record of the same name. Every node
// decides alike. Of two changes at the same time, the one that permits less counts.
func (r record) replaces(other record) bool {
	return cmp.Or(cmp.Compare(r.Version, other.Version), cmp.Compare(other.Role.Rank(), r.Role.Rank())) > 0
}

// maxAhead is how far the clocks of nodes may differ.
const maxAhead = 24 * time.Hour

// ahead reports whether the record lets somebody in and has a version that no honest clock
// could give: it could not be replaced, so the person not be removed. A removal always counts.
func (r record) ahead(now time.Time) bool {
	return r.Role != "" && r.Version > now.Add(maxAhead).UnixMicro()
}

// parseRecord reads a record from the file or from another node.
func parseRecord(data []byte) (r record, ok bool) {
	err := json.Unmarshal(data, &r)
	ok = err == nil && r.Name != "" && len(r.Name) <= maxName && ferrule.Clean(r.Name, maxName) == r.Name &&
		r.Version > 0 && (r.Role == "" || r.Role.Rank() > 0)
	return r, ok
}

// The prefixes of keys: of records here and in the shared ones, and of times of logins in
// the file.
const (
	personPrefix = "people."
	loginPrefix  = "login."
)

// Open reads the people of a node. It must be closed.
func Open(parts Parts) (*People, error) {
	file, unreadable, err := records.Open(parts.File)
	if err != nil {
		return nil, fmt.Errorf("people: %w", err)
	}
	if parts.Changed == nil {
		parts.Changed = func(string, bool) int { return 0 }
	}
	if parts.Frame == nil {
		parts.Frame = func(w io.Writer, _ string, body template.HTML) error {
			_, err := io.WriteString(w, string(body))
			return err
		}
	}
	if parts.Issuers == nil {
		parts.Issuers = func() []Issuer { return nil }
	}
	p := &People{
		parts: parts, file: file, key: make([]byte, sha256.Size),
		known: make(map[string]record), logins: make(map[string]time.Time), heard: make(map[string]int64),
		links: make(map[[sha256.Size]byte]*link), sessions: make(map[[sha256.Size]byte]*session), attempts: ratelimit.NewKeyed[netip.Prefix](attemptRate, maxAddresses),
		asks: ratelimit.NewKeyed[netip.Prefix](attemptRate, maxAddresses),
	}
	rand.Read(p.key)
	p.mux = p.routes()
	logins := make(map[string]time.Time)
	for key, data := range file.All() {
		if name, ok := strings.CutPrefix(key, loginPrefix); ok {
			var at time.Time
			if json.Unmarshal(data, &at) == nil {
				logins[name] = at
			}
			continue
		}
		r, ok := parseRecord(data)
		if !ok || personPrefix+r.key() != key {
			unreadable++
			continue
		}
		p.known[r.Name] = r
	}
	for name, r := range p.known { // the map of the file has no order
		p.logins[name] = logins[r.key()]
	}
	if unreadable > 0 {
		parts.Log.Error(fmt.Sprintf("%d people are unreadable and cannot log in; add them again with `ferrule people add`", unreadable), "file", parts.File)
	}
	p.prune(time.Now())
	if parts.Shared != nil {
		parts.Shared.Watch(p.hear)
		parts.Shared.OnSync(p.shareMissing)
	}
	return p, nil
}

// Close closes the file.
func (p *People) Close() error { return p.file.Close() }

// hear is called with the records of all nodes.
func (p *People) hear(name string, value []byte) {
	key, ok := strings.CutPrefix(name, personPrefix)
	if !ok {
		return
	}
	r, ok := parseRecord(value)
	if !ok || r.key() != key || r.ahead(time.Now()) {
		return
	}
	p.changing.Lock()
	defer p.changing.Unlock()
	p.mu.Lock()
	own, known := p.known[r.Name]
	p.heard[key] = r.Version
	newer := !known || r.replaces(own)
	if newer {
		p.known[r.Name] = r // even if the file cannot be written: a removed person is out
	}
	p.mu.Unlock()
	switch {
	case newer:
		if known || !r.outdated(time.Now()) { // otherwise it was pruned here, and what was permitted is newer
			p.parts.Changed(r.Name, true)
		}
		if err := p.file.Put(name, r); err != nil {
			p.parts.Log.Error("a change of a person on another node is not stored", "err", err)
		}
	case own.replaces(r):
		p.share(own)
	}
}

// shareMissing shares the records that other nodes do not have, because they could not be
// reached when it changed.
func (p *People) shareMissing() {
	p.changing.Lock()
	defer p.changing.Unlock()
	p.mu.Lock()
	var missing []record
	for _, r := range p.known {
		if p.heard[r.key()] < r.Version {
			missing = append(missing, r)
		}
	}
	p.mu.Unlock()
	for _, r := range missing {
		p.share(r)
	}
}

// share shows a record to other nodes. It is retried in the background.
func (p *People) share(r record) error {
	if p.parts.Shared == nil {
		return nil
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return p.parts.Shared.Put(personPrefix+r.key(), data)
}

// outdated reports whether the record is of a person who was removed long ago.
func (r record) outdated(now time.Time) bool {
	return r.Role == "" && now.Sub(time.UnixMicro(r.Version)) > removedAge
}

// prune forgets people who were removed long ago.
func (p *People) prune(now time.Time) {
	for name, r := range p.known {
		if r.outdated(now) {
			delete(p.known, name)
			delete(p.logins, name)
			p.file.Delete(personPrefix + r.key()) // otherwise it is deleted at the next start
			p.file.Delete(loginPrefix + r.key())
		}
	}
}

// List returns the people who may log in, and others who are logged in, by name.
func (p *People) List() []ferrule.KnownPerson {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[string]ferrule.KnownPerson)
	for name, r := range p.known {
		if r.Role != "" {
			all[name] = ferrule.KnownPerson{Name: name, LoginID: loginID(r.Version), Role: r.Role, LastLogin: p.logins[name]}
		}
	}
	now := time.Now()
	for id, s := range p.sessions {
		if p.ended(s, now) {
			delete(p.sessions, id)
			continue
		}
		one, ok := all[s.who.Name]
		if !ok {
			one = ferrule.KnownPerson{Name: s.who.Name, LoginID: s.who.TokenID, Role: s.role}
		}
		one.Sessions++
		if s.began.After(one.LastLogin) {
			one.LastLogin = s.began.Round(0)
		}
		all[s.who.Name] = one
	}
	return slices.SortedFunc(maps.Values(all), func(a, b ferrule.KnownPerson) int { return strings.Compare(a.Name, b.Name) })
}

// reserved are names that mean something else in the journal.
var reserved = []string{"link"}

// Add adds a person.
func (p *People) Add(by ferrule.Principal, name string, role ferrule.PersonRole) (ferrule.KnownPerson, error) {
	if err := ferrule.CheckID(name); err != nil {
		return ferrule.KnownPerson{}, ferrule.Errorf(ferrule.Invalid, "the person cannot be added: %w", err)
	}
	if slices.Contains(reserved, name) {
		return ferrule.KnownPerson{}, ferrule.Errorf(ferrule.Invalid, "%q cannot be the name of a person: the journal uses it for answers through a link", name)
	}
	return p.change(by, name, ferrule.AccessPersonAdded, func(r record) (record, string, error) {
		if r.Role != "" {
			return r, "", ferrule.Errorf(ferrule.Invalid, "there is already a person %q, with the role %s", name, r.Role).
				WithHint("to give another role, run `ferrule people role %s ROLE`", name)
		}
		r.Role = role
		return r, fmt.Sprintf("%s was added as %s", name, role), nil
	})
}

// SetRole gives a person another role. The person has to log in again.
func (p *People) SetRole(by ferrule.Principal, name string, role ferrule.PersonRole) (ferrule.KnownPerson, error) {
	return p.change(by, name, ferrule.AccessPersonAdded, func(r record) (record, string, error) {
		if r.Role == "" {
			return r, "", p.unknown(name)
		}
		before := r.Role
		r.Role = role
		return r, fmt.Sprintf("%s was %s and is now %s", name, before, role), nil
	})
}

// Remove removes a person, and ends the sessions of that name and what it has permitted.
func (p *People) Remove(by ferrule.Principal, name string) (ferrule.KnownPerson, error) {
	return p.change(by, name, ferrule.AccessPersonRemoved, func(r record) (record, string, error) {
		if r.Role == "" && p.parts.Changed(name, false) == 0 {
			return r, "", p.unknown(name)
		}
		r.Role = ""
		return r, name + " was removed", nil
	})
}

// Logout ends all sessions of a person and what the person has permitted. The person may log
// in again. Users of this machine and people of an issuer have no record before.
func (p *People) Logout(by ferrule.Principal, name string) (ferrule.KnownPerson, error) {
	return p.change(by, name, ferrule.AccessLogout, func(r record) (record, string, error) {
		if r.Version == 0 && !slices.ContainsFunc(p.List(), func(one ferrule.KnownPerson) bool { return one.Name == name }) && p.parts.Changed(name, false) == 0 {
			return r, "", p.unknown(name)
		}
		return r, "all sessions of " + name + " were ended", nil
	})
}

func (p *People) unknown(name string) error {
	return ferrule.Errorf(ferrule.NotFound, "there is no person %q", ferrule.Clean(name, ferrule.MaxWord)).
		WithHint("to see who there is, run `ferrule people list`. Users of this machine who can run `ferrule` are not in that list; to end their sessions, run `ferrule people logout NAME`")
}

// change changes a record, here and on other nodes.
func (p *People) change(by ferrule.Principal, name string, event ferrule.AccessEvent, edit func(record) (record, string, error)) (out ferrule.KnownPerson, err error) {
	if by.Role != ferrule.Person {
		// An agent that could make people could let itself in as one.
		return out, ferrule.Errorf(ferrule.Denied, "only a person can change who may log in; %s is not one", ferrule.Clean(by.String(), ferrule.MaxWord))
	}
	p.changing.Lock()
	defer p.changing.Unlock()
	p.mu.Lock()
	r, known := p.known[name]
	if !known && len(p.known) >= maxPeople {
		p.prune(time.Now())
	}
	full := !known && len(p.known) >= maxPeople
	p.mu.Unlock()
	r.Name = name
	before := r
	r, message, err := edit(r)
	if err != nil {
		return out, err
	}
	if full {
		return out, ferrule.Errorf(ferrule.Limited, "there are %d people, counting those who were removed in the last 30 days; limit is %d", maxPeople, maxPeople)
	}
	r.Version = max(time.Now().UnixMicro(), before.Version+1)
	if err := p.file.Put(personPrefix+r.key(), r); err != nil {
		return out, ferrule.Errorf(ferrule.Internal, "nothing was changed, because it cannot be stored: %w", err).
			WithHint("check that the disk of the data directory is not full")
	}
	p.mu.Lock()
	p.known[name] = r
	out = ferrule.KnownPerson{Name: name, Role: r.Role, LastLogin: p.logins[name]}
	p.mu.Unlock()
	p.parts.Changed(name, false) // after the sessions have ended, so that nothing more is permitted
	if err := p.share(r); err != nil {
		out.Note = "Other nodes could not be told yet. They will be as soon as they can be reached."
		p.parts.Log.Warn("a change of a person is not shared with other nodes yet; it is retried", "err", err)
	}
	p.parts.Record(by, event, "", message, "")
	return out, nil
}

// version returns the version of a person's record; 0 if there is none. It is called with
// mu held.
func (p *People) version(name string) int64 { return p.known[name].Version }

// mac returns a code that only this run can make.
func (p *People) mac(purpose string, values ...string) string {
	h := hmac.New(sha256.New, p.key)
	fmt.Fprintf(h, "%q", append([]string{purpose}, values...))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// equal compares secrets in constant time.
func equal(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }

// The limit of attempts to log in that fail, and of those that ask an issuer. What is right is
// never refused because of others that failed: behind a proxy, all browsers have one address.
var attemptRate = ratelimit.PerMinute(30)

const maxAddresses = 1024

// attempt counts an attempt that failed, and reports whether its address may make it.
func (p *People) attempt(r *http.Request) bool {
	return p.attempts.Take(mcphttp.HostOf(r.RemoteAddr), time.Now()) == 0
}
