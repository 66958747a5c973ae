package oauth

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

// How long codes and tokens are good for.
const (
	codeTTL    = time.Minute
	accessTTL  = time.Hour
	refreshTTL = 30 * 24 * time.Hour
	// issuerTTL is how long a grant of somebody who logged in through an external issuer lasts
	// at most: nobody tells the gateway when that person is removed there.
	issuerTTL = 7 * 24 * time.Hour
	// overlap is how long a refresh token that was replaced returns its successor: processes
	// of one agent share it, and one of them is first.
	overlap = time.Minute
)

// Limits of what is kept.
const (
	maxCodes           = 1024
	maxGrants          = 512
	maxGrantsPerPerson = 64
	maxForeign         = 8192
	// maxEnded is how many access tokens that ended with their grant, or were replaced, are
	// known for endedTTL after they would have expired: the journal names whose they were.
	maxEnded = 1024
	endedTTL = 24 * time.Hour
	// maxAccess is the limit of access tokens for each grant.
	maxAccess = 6
	// maxPast is how many replaced refresh tokens are remembered, to notice that one was
	// stolen. Older ones are refused like unknown ones.
	maxPast = 256
	// maxDevices is the length of the list of devices. A grant must fit into a shared record.
	maxDevices = 1600
)

// The prefixes of secrets say what they are, to people and to programs that look for leaks.
const (
	codePrefix    = "ferc_"
	accessPrefix  = "fera_"
	refreshPrefix = "ferr_"
)

// GrantPrefix begins the ID of each grant.
const GrantPrefix = "grant-"

// The prefixes of keys in the file, and of shared records.
const (
	clientPrefix = "client."
	grantPrefix  = "grant."
	sharedPrefix = "oauth."
)

// code is a code that was not used yet.
type code struct {
	client    *client
	redirect  string
	challenge string // empty for none
	person    ferrule.Principal
	consented
	expires time.Time
}

// consented is what a person permitted.
type consented struct {
	Scopes  ferrule.Scopes `json:"scopes"`
	Devices string         `json:"devices,omitempty"` // as a Principal has them
	// Device is the only device whose address the tokens open; empty for all.
	Device string `json:"device,omitempty"`
	// Offline reports whether the program asked for offline_access.
	Offline bool `json:"offline,omitempty"`
}

// grant is what a person permitted a program. It does not change, but for its use; a change
// makes another one.
type grant struct {
	id string
	storedGrant
	foreign bool
	valid   context.Context // ends with the grant
	end     context.CancelFunc
	use     *atomic.Pointer[use]
}

// use is the last use of a grant's tokens.
type use struct {
	at   time.Time
	from string
	seen []string // addresses that were recorded
}

// maxSeen limits how many addresses of a grant are remembered.
const maxSeen = 8

// access is an access token that is accepted.
type access struct {
	issued
	grant *grant
	who   ferrule.Principal
	once  sync.Once
	valid context.Context
	end   context.CancelFunc
}

func newGrant(id string, stored storedGrant, foreign bool) *grant {
	g := &grant{id: id, storedGrant: stored, foreign: foreign, use: new(atomic.Pointer[use])}
	g.valid, g.end = context.WithCancel(context.Background())
	if !stored.Used.IsZero() {
		g.use.Store(&use{stored.Used, stored.From, []string{stored.From}})
	}
	return g
}

// agent returns the caller that a token with these scopes belongs to.
func (g *grant) agent(scopes ferrule.Scopes) ferrule.Principal {
	return ferrule.Principal{
		Role: ferrule.Agent, Name: "oauth:" + g.Person + "/" + g.Label, Auth: ferrule.AuthOAuth, User: g.Person,
		Scopes: scopes, Devices: cmp.Or(g.Device, g.Devices), TokenID: g.id,
	}
}

// Verify implements identity.Verifier.
func (s *Server) Verify(_ context.Context, token string, r identity.Request) (identity.Credential, error) {
	if !strings.HasPrefix(token, accessPrefix) {
		return identity.Credential{}, identity.ErrUnknown
	}
	s.mu.RLock()
	a, ended := s.access[hashOf(token)], s.ended[hashOf(token)]
	s.mu.RUnlock()
	switch {
	case a == nil && ended == nil:
		return identity.Credential{}, identity.ErrUnknown
	case a == nil:
		return identity.Credential{Who: ended.who}, identity.ErrUnknown
	case !r.Time.Before(a.Expires):
		return identity.Credential{Who: a.who}, identity.ErrExpired
	}
	g := a.grant
	if g.Device != "" && r.Resource != "" && !strings.HasSuffix(r.Resource, devicePath+g.Device) {
		return identity.Credential{Who: a.who}, identity.ErrAudience
	}
	a.once.Do(func() { a.valid, a.end = context.WithDeadline(g.valid, a.Expires) })
	if g.isNew(r) {
		s.parts.Record(a.who, ferrule.AccessTokenUsed, r.From, "a token of "+g.id, "")
	}
	return identity.Credential{Who: a.who, Valid: a.valid, Device: g.Device}, nil
}

// isNew notes a use, and reports whether it is the first one from its address.
func (g *grant) isNew(r identity.Request) bool {
	now := &use{at: r.Time, from: r.From}
	last := g.use.Load()
	if last != nil {
		now.seen = last.seen
	}
	known := slices.Contains(now.seen, r.From)
	if !known {
		now.seen = append(slices.Clone(now.seen[max(0, len(now.seen)-maxSeen+1):]), r.From)
	}
	return g.use.CompareAndSwap(last, now) && !known
}

// load reads the file.
func (s *Server) load(all map[string]json.RawMessage) {
	for key, value := range all {
		var err error
		if id, ok := strings.CutPrefix(key, clientPrefix); ok {
			c := new(client)
			if err = json.Unmarshal(value, c); err == nil && c.ID == id {
				s.clients[id] = c
			}
		} else if id, ok := strings.CutPrefix(key, grantPrefix); ok {
			var stored storedGrant
			if err = json.Unmarshal(value, &stored); err == nil {
				err = stored.check()
			}
			if err == nil {
				s.index(newGrant(id, stored, false))
				s.unheard[id] = true
			}
		}
		if err != nil {
			s.parts.Log.Warn("an agent must be let in again: its record is unreadable", "err", err)
		}
	}
}

// index makes the tokens of a grant known. It is called with mu held for writing, or before
// the server is in use.
func (s *Server) index(g *grant) {
	if g.foreign {
		s.foreign[g.id] = g
	} else {
		s.grants[g.id] = g
		s.used[g.Code] = g
		s.refresh[g.Refresh] = g
		for _, r := range g.Recent {
			s.refresh[r.Hash] = g
		}
		for _, p := range g.Past {
			s.past[p] = g
		}
	}
	for _, one := range g.Access {
		s.access[one.Hash] = &access{issued: one, grant: g, who: g.agent(one.Scopes)}
	}
}

// unindex is the opposite of index. Tokens that next has too stay valid without a break.
func (s *Server) unindex(g, next *grant) {
	if g.foreign {
		delete(s.foreign, g.id)
	} else {
		delete(s.grants, g.id)
		delete(s.used, g.Code)
		delete(s.refresh, g.Refresh)
		for _, r := range g.Recent {
			delete(s.refresh, r.Hash)
		}
		for _, p := range g.Past {
			delete(s.past, p)
		}
	}
	for _, one := range g.Access {
		a := s.access[one.Hash]
		delete(s.access, one.Hash)
		if a == nil || next != nil && slices.ContainsFunc(next.Access, func(n issued) bool { return n.Hash == one.Hash }) {
			continue // its context is that of the grant, which goes on
		}
		a.once.Do(func() { a.valid, a.end = context.WithDeadline(g.valid, a.Expires) })
		a.end()
		if len(s.ended) < maxEnded {
			s.ended[one.Hash] = a
		}
	}
	if next == nil {
		g.end()
		if len(s.gone) >= maxForeign {
			clear(s.gone)
		}
		s.gone[g.id] = true
	}
}

// replace puts a changed grant in the place of the one before. The context of tokens in both
// goes on. It is called with changing held.
func (s *Server) replace(g *grant, stored storedGrant) *grant {
	next := &grant{id: g.id, storedGrant: stored, foreign: g.foreign, valid: g.valid, end: g.end, use: g.use}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := make(map[hash]*access)
	for _, one := range g.Access {
		before[one.Hash] = s.access[one.Hash]
	}
	s.unindex(g, next)
	s.index(next)
	for _, one := range next.Access {
		if a := before[one.Hash]; a != nil {
			a.once.Do(func() { a.valid, a.end = context.WithDeadline(g.valid, a.Expires) })
			now := s.access[one.Hash]
			now.once.Do(func() { now.valid, now.end = a.valid, a.end })
		}
	}
	return next
}

// save stores a grant that is new, or the next version of one. Nothing changes if that
// fails. It is called with changing held. The channel is closed when the other nodes know it.
func (s *Server) save(g *grant, stored storedGrant) (next *grant, heard <-chan struct{}, err error) {
	if u := g.use.Load(); u != nil {
		stored.Used, stored.From = u.at, u.from
	}
	if err := s.file.Put(grantPrefix+g.id, stored); err != nil {
		s.parts.Log.Error("a grant cannot be stored", "err", err)
		return nil, nil, errors.New("the gateway cannot store the grant; see its log")
	}
	next = s.replace(g, stored)
	return next, s.share(next), nil
}

// add makes a grant from a code, and returns its first tokens.
func (s *Server) add(c *code, of hash) (g *grant, accessToken, refreshToken string, heard <-chan struct{}, err error) {
	s.makeRoom(c.person.Name)
	now := time.Now().UTC().Round(0)
	accessToken, refreshToken = newSecret(accessPrefix), newSecret(refreshPrefix)
	g = newGrant(GrantPrefix+strings.ToLower(rand.Text()[:10]), storedGrant{}, false)
	stored := storedGrant{
		sharedGrant: sharedGrant{
			Node: s.parts.Node, Client: c.client.ID, Label: c.client.label(), Person: c.person.Name, consented: c.consented, Created: now,
			Access: []issued{{hashOf(accessToken), now.Add(accessTTL), c.Scopes}},
		},
		Code: of, Refresh: hashOf(refreshToken),
	}
	stored.Expires = stored.until(now, refreshTTL)
	g, heard, err = s.save(g, stored)
	return g, accessToken, refreshToken, heard, err
}

// makeRoom ends the grants that were not used for longest, if there are too many. It is
// called with changing held.
func (s *Server) makeRoom(person string) {
	var all, theirs []*grant
	for _, g := range s.grants {
		all = append(all, g)
		if g.Person == person {
			theirs = append(theirs, g)
		}
	}
	for _, list := range [][]*grant{limit(theirs, maxGrantsPerPerson), limit(all, maxGrants)} {
		for _, g := range list {
			if s.grants[g.id] != nil {
				s.drop(g)
				s.parts.Record(g.agent(g.Scopes), ferrule.AccessTokenRevoked, "", fmt.Sprintf("%s was not used for longest, and there are too many", g.id), "")
			}
		}
	}
}

// limit returns the grants that must go so that there is room for one more.
func limit(all []*grant, most int) []*grant {
	if len(all) < most {
		return nil
	}
	slices.SortFunc(all, func(a, b *grant) int { return a.lastUsed().Compare(b.lastUsed()) })
	return all[:len(all)-most+1]
}

func (g *grant) lastUsed() time.Time {
	if u := g.use.Load(); u != nil && u.at.After(g.Created) {
		return u.at
	}
	return g.Created
}

// rotate replaces the refresh token of a grant. It is called with changing held.
func (s *Server) rotate(g *grant, token string, scopes ferrule.Scopes) (next *grant, accessToken, refreshToken string, heard <-chan struct{}, err error) {
	now := time.Now().UTC().Round(0)
	by := rotation{Hash: g.Refresh, Salt: make([]byte, 32), Time: now}
	rand.Read(by.Salt)
	accessToken, refreshToken = by.derive(token, accessPrefix), by.derive(token, refreshPrefix)
	stored := g.storedGrant
	stored.Expires = stored.until(now, refreshTTL)
	stored.Refresh = hashOf(refreshToken)
	stored.Recent = []rotation{by}
	stored.Past = slices.Clone(g.Past)
	for _, r := range slices.Backward(g.Recent) {
		if now.Sub(r.Time) <= overlap && len(stored.Recent) < maxAccess-1 {
			stored.Recent = slices.Insert(stored.Recent, 0, r)
		} else {
			stored.Past = append(stored.Past, r.Hash.short())
		}
	}
	stored.Past = stored.Past[max(0, len(stored.Past)-maxPast):]
	stored.Access = slices.DeleteFunc(slices.Clone(g.Access), func(one issued) bool { return !now.Before(one.Expires) })
	stored.Access = append(stored.Access, issued{hashOf(accessToken), stored.until(now, accessTTL), scopes})
	stored.Access = stored.Access[max(0, len(stored.Access)-maxAccess):]
	next, heard, err = s.save(g, stored)
	return next, accessToken, refreshToken, heard, err
}

// drop ends a grant of this node. It is called with changing held.
func (s *Server) drop(g *grant) error {
	s.mu.Lock()
	s.unindex(g, nil)
	s.mu.Unlock()
	delete(s.unheard, g.id)
	if s.parts.Shared != nil {
		s.outbox.Put(sharedPrefix+g.id, nil)
	}
	if err := s.file.Delete(grantPrefix + g.id); err != nil {
		s.parts.Log.Error("a grant has ended, but comes back after a restart", "grant", g.id, "err", err)
		return fmt.Errorf("%s has ended, but cannot be removed from the disk, so it comes back after a restart: %w", g.id, err)
	}
	return nil
}

// Grants returns the grants of all nodes, oldest first. When and from where one was used is
// what this node knows.
func (s *Server) Grants() []ferrule.Token {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := []ferrule.Token{}
	for _, of := range []map[string]*grant{s.grants, s.foreign} {
		for _, g := range of {
			who := g.agent(g.Scopes)
			one := ferrule.Token{
				Name: g.id, ID: g.id, Scopes: g.Scopes.Names(), Devices: who.DevicePatterns(), Created: g.Created, Expires: g.Expires,
				Login: &ferrule.TokenLogin{Person: g.Person, Client: g.Client, Agent: who.String(), Node: g.Node},
			}
			if u := g.use.Load(); u != nil {
				one.Used, one.From = u.at, u.from
			}
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b ferrule.Token) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name)) })
	return all
}

// Ended reports whether a grant of this node or another one was revoked or has expired. Known
// is false if this node has not seen the grant in this run. It has then ended, or is new on
// another node; Ended is false until the grants of other nodes are known.
func (s *Server) Ended(id string) (ended, known bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.grants[id] != nil || s.foreign[id] != nil {
		return false, true
	}
	return s.gone[id] || s.synced, s.gone[id]
}

// Revoke ends a grant, on all nodes. By is who wants it.
func (s *Server) Revoke(by ferrule.Principal, id string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	g := cmp.Or(s.grants[id], s.foreign[id])
	if g == nil {
		return ferrule.Errorf(ferrule.NotFound, "there is no login %q", ferrule.Clean(id, ferrule.MaxWord)).WithHint("to see the tokens and logins, run `ferrule token list`")
	}
	return s.revoke(by, g, "", "revoked")
}

// EndGrants ends all grants that a person gave, for example because the person was removed
// or has another role now; with own, only those of this node. The person can give new ones.
// It returns how many there were.
func (s *Server) EndGrants(person string, own bool) (ended int) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	var all []*grant
	for _, of := range []map[string]*grant{s.grants, s.foreign} {
		for _, g := range of {
			if g.Person == person && !(own && g.foreign) {
				all = append(all, g)
			}
		}
	}
	for of, c := range s.codes {
		if c.person.Name == person {
			delete(s.codes, of)
			ended++
		}
	}
	s.mu.Unlock()
	for _, g := range all {
		s.revoke(g.agent(g.Scopes), g, "", person+" was removed or logged out, or has another role")
	}
	return ended + len(all)
}

// revoke ends a grant and records it. It is called with changing held.
func (s *Server) revoke(by ferrule.Principal, g *grant, from, why string) (err error) {
	if g.foreign {
		s.mu.Lock()
		s.unindex(g, nil)
		s.mu.Unlock()
		end := g.sharedGrant
		end.Revoked, end.Access = true, nil
		s.put(g.id, end)
	} else {
		err = s.drop(g)
	}
	s.parts.Record(by, ferrule.AccessTokenRevoked, from, fmt.Sprintf("%s of %s: %s", g.id, g.agent(g.Scopes), why), "")
	return err
}

// sweep removes what has expired.
func (s *Server) sweep(now time.Time) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	for of, c := range s.codes {
		if now.After(c.expires) {
			delete(s.codes, of)
		}
	}
	maps.DeleteFunc(s.ended, func(_ hash, a *access) bool { return now.After(a.Expires.Add(endedTTL)) })
	s.mu.Unlock()
	for _, g := range s.grants {
		if now.After(g.Expires) {
			s.drop(g)
		}
	}
	for id, g := range s.foreign {
		if now.After(g.Expires.Add(24 * time.Hour)) { // its node is gone
			s.mu.Lock()
			s.unindex(g, nil)
			s.mu.Unlock()
			s.outbox.Put(sharedPrefix+id, nil)
		}
	}
	needed := s.neededClients()
	for id, c := range s.clients {
		if !needed[id] && now.After(c.until()) {
			s.dropClient(id)
		}
	}
}
