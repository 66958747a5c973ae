// Package tokens keeps the tokens that people make with `ferrule token`.
//
//	Add, Rotate, Revoke ─▶ record ─┬─ in memory: Verify, by hash
//	                               ├─ file, which survives a crash
//	                               └─ shared records ─▶ the same on other nodes
//
// A secret is returned once and never stored: records have its SHA-256 hash. A rotated
// token has two secrets for a while, so that no call is lost while its agent changes over.
// A credential's context ends when its secret is revoked, expires, or has been replaced
// for long enough.
//
// When and from where a token was used is kept in memory and saved now and then: Verify
// never waits for a disk.
package tokens

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/guard/records"
)

// Limits of tokens.
const (
	maxTokens   = 1000
	maxRecords  = 4 * maxTokens // with those that were revoked
	maxDevices  = 1024          // bytes of patterns
	maxLifetime = 10 * 365 * 24 * time.Hour
	// MaxOverlap is how long the previous secret of a token may be accepted.
	MaxOverlap = 7 * 24 * time.Hour
	// saveEvery is how often the uses of tokens are saved.
	saveEvery = time.Minute
	// maxPlaces is how many addresses of a token are remembered: a use from another one is
	// recorded.
	maxPlaces = 16
	// revokedAge is how long the record of a revoked token is kept, here and in the shared
	// records, which have a limit. Only a node that has not heard of it in all that time
	// could bring the token back. So it is far longer than nodes are off, and than the week
	// for which the shared records know that one of them was deleted.
	revokedAge = 180 * 24 * time.Hour
)

// The keys of shared records and of the file begin with these.
const (
	tokenKey = "token."
	useKey   = "tokenuse."
	// idKey is the key of the IDs of configured tokens. It is only in the file.
	idKey = "config-id-key"
)

// Parts is what a Store works with.
type Parts struct {
	File string
	// Shared is nil if this is the only node.
	Shared records.Synced
	// Taken reports whether another kind of token has a name.
	Taken func(name string) bool
	// Record records what happens to tokens.
	Record func(who ferrule.Principal, event ferrule.AccessEvent, from, message string, refused ferrule.Code)
	Log    *slog.Logger
}

// Store is the set of tokens. It is safe for concurrent use.
type Store struct {
	parts Parts
	file  *records.File

	// changing is held while a record changes, in memory and in the file: otherwise the file
	// could have an older one. It comes before mu.
	changing sync.Mutex
	outbox   *records.Outbox // of uses, and of records that are forgotten

	mu        sync.RWMutex
	byName    map[string]*token
	byHash    map[hash]*secret
	published map[string]record // as the shared records have them

	configIDKey []byte // guarded by changing
}

// token is what is known about one name.
type token struct {
	record
	secrets map[hash]*secret

	mu     sync.Mutex
	last   use
	places []string // that it was used from
	saved  use
}

// secret is one that is accepted until a time, or for ever if that is zero. It may change:
// what a caller has open with the previous secret of a token goes on during the overlap.
type secret struct {
	token *token
	who   ferrule.Principal
	until time.Time
	timer *time.Timer
	valid context.Context // ends with the secret
	end   context.CancelFunc
}

// setUntil changes how long the secret is accepted.
func (s *secret) setUntil(until time.Time) {
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.until = until; !until.IsZero() {
		s.timer = time.AfterFunc(time.Until(until), s.end)
	}
}

// stop ends the secret.
func (s *secret) stop() {
	s.setUntil(time.Time{})
	s.end()
}

// Open returns the tokens in a file. Run saves what changes later.
func Open(p Parts) (*Store, error) {
	file, unreadable, err := records.Open(p.File)
	if err != nil {
		return nil, fmt.Errorf("opening the tokens: %w", err)
	}
	s := &Store{parts: p, file: file, outbox: records.NewOutbox(), byName: make(map[string]*token), byHash: make(map[hash]*secret), published: make(map[string]record)}
	all := file.All()
	for _, key := range slices.Sorted(maps.Keys(all)) { // tokens before their uses
		name, isToken := strings.CutPrefix(key, tokenKey)
		r, err := parse(name, all[key])
		switch {
		case key == idKey:
			json.Unmarshal(all[key], &s.configIDKey) // another one is made if that fails
		case !isToken:
			s.hearUse(strings.TrimPrefix(key, useKey), all[key])
		case err != nil:
			unreadable++
		default:
			s.set(r)
		}
	}
	if unreadable > 0 {
		p.Log.Warn("some tokens cannot be read and are not accepted; to see the others, run `ferrule token list`", "file", p.File, "lines", unreadable)
	}
	for _, t := range s.byName {
		t.saved = t.last
	}
	s.prune(time.Now())
	return s, nil
}

// ConfigIDKey returns the key for [identity.Tokens.SetIDs]. It is the same after a restart.
func (s *Store) ConfigIDKey() []byte {
	s.changing.Lock()
	defer s.changing.Unlock()
	if len(s.configIDKey) != sha256.Size {
		s.configIDKey = make([]byte, sha256.Size)
		rand.Read(s.configIDKey) // it never fails
		if err := s.file.Put(idKey, s.configIDKey); err != nil {
			s.parts.Log.Warn("the key for the IDs of tokens in auth.tokens is not saved; their approvals end with the next restart", "err", err)
		}
	}
	return s.configIDKey
}

// Connect makes the tokens those of all nodes. It is called once, before the cluster runs.
func (s *Store) Connect() {
	if s.parts.Shared == nil {
		return
	}
	s.parts.Shared.Watch(func(key string, value []byte) {
		if name, ok := strings.CutPrefix(key, tokenKey); ok && value == nil {
			s.hearDeleted(name)
		} else if ok {
			s.hear(name, value)
		} else if name, ok := strings.CutPrefix(key, useKey); ok && value != nil {
			s.hearUse(name, value)
		}
	})
	s.parts.Shared.OnSync(s.publishMissing)
}

// Verify implements identity.Verifier.
func (s *Store) Verify(_ context.Context, credential string, r identity.Request) (c identity.Credential, err error) {
	if len(credential) != secretLen || !strings.HasPrefix(credential, Prefix) {
		return c, identity.ErrUnknown
	}
	h := hash(sha256.Sum256([]byte(credential)))
	s.mu.RLock()
	found, revoked, expired := s.byHash[h], false, false
	if found != nil {
		revoked = found.token.Revoked
		expired = found.valid.Err() != nil || !found.until.IsZero() && !r.Time.Before(found.until)
	}
	s.mu.RUnlock()
	switch {
	case found == nil:
		return c, identity.ErrUnknown
	case revoked:
		return identity.Credential{Who: found.who}, identity.ErrUnknown
	case expired:
		return identity.Credential{Who: found.who}, identity.ErrExpired
	}
	found.token.usedFrom(r, func(message string) {
		s.parts.Record(found.who, ferrule.AccessTokenUsed, r.From, message, "")
	})
	return identity.Credential{Who: found.who, Valid: found.valid}, nil
}

// usedFrom remembers a use. It calls record with the first one, and the first one from
// another address.
func (t *token) usedFrom(r identity.Request, record func(message string)) {
	t.mu.Lock()
	message := ""
	switch {
	case t.last.Time.IsZero():
		message = "used for the first time"
	case !slices.Contains(t.places, r.From):
		message = "used from another address"
	}
	if message != "" {
		t.places = append(t.places[max(0, len(t.places)-maxPlaces+1):len(t.places):len(t.places)], r.From)
	}
	t.last = use{r.Time.Round(0), r.From}
	t.mu.Unlock()
	if message != "" {
		record(message)
	}
}

// set makes a record count. It ends secrets that are no longer accepted. It is called with
// mu held, or before the store is in use.
func (s *Store) set(r record) {
	t := s.byName[r.Name]
	if t == nil {
		t = &token{}
		s.byName[r.Name] = t
	} else if t.Revoked || !t.Created.Equal(r.Created) { // another token of the same name
		t.mu.Lock()
		t.last, t.places, t.saved = use{}, nil, use{}
		t.mu.Unlock()
	}
	t.record = r
	until := map[hash]time.Time{r.Hash: r.Expires, r.Previous: r.Overlap}
	delete(until, hash{})
	next := make(map[hash]*secret)
	for h, limit := range until {
		kept := t.secrets[h]
		if kept == nil || kept.who != r.who() || kept.valid.Err() != nil {
			kept = &secret{token: t, who: r.who()}
			kept.valid, kept.end = context.WithCancel(context.Background())
		}
		if kept.setUntil(limit); r.Revoked { // it stays, to know whose it was
			kept.stop()
		}
		next[h], s.byHash[h] = kept, kept
	}
	for h, was := range t.secrets {
		if next[h] == nil {
			delete(s.byHash, h)
		}
		if next[h] != was {
			was.stop()
		}
	}
	t.secrets = next
}

// hear handles a record of another node, or of this one as it comes back.
func (s *Store) hear(name string, value []byte) {
	r, err := parse(name, value)
	if err == nil && r.ahead(time.Now()) {
		err = fmt.Errorf("%s was changed in the future; check the clocks of the nodes", name)
	}
	if err != nil {
		s.parts.Log.Warn("ignored a token of another node", "err", err)
		return
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	s.published[name] = r
	known, ok := s.byName[name]
	newer := !ok || r.newer(known.record)
	older := ok && known.newer(r)
	if older {
		r = known.record
	}
	s.mu.Unlock()
	switch {
	case !ok && r.forgotten(time.Now()): // this node has done so
		s.tell(tokenKey+name, nil)
	case newer && !s.makeRoom(name):
		s.parts.Log.Warn("ignored a token of another node: there are too many")
	case newer:
		s.mu.Lock()
		s.set(r)
		s.mu.Unlock()
		if err := s.file.Put(tokenKey+name, r); err != nil {
			s.parts.Log.Error("a token of another node is not saved; after a restart this node learns it again", "err", err)
		}
	case older: // that node does not know
		go s.publish(r)
	}
}

// hearDeleted handles that the shared records have lost a token, because another node has
// forgotten it. If it was added again meanwhile, that node is told.
func (s *Store) hearDeleted(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.published, name)
	if t := s.byName[name]; t != nil && !t.forgotten(time.Now()) {
		go s.publish(t.record)
	}
}

// prune forgets tokens that were revoked long ago. It is called with changing held, or
// before the store is in use.
func (s *Store) prune(now time.Time) {
	s.mu.Lock()
	var old []*token
	for _, t := range s.byName {
		if t.forgotten(now) {
			old = append(old, t)
		}
	}
	s.mu.Unlock()
	for _, t := range old {
		s.forget(t)
	}
}

// forget removes what is left of a revoked token. Of the shared records it removes only the
// one that this node knows: another node may have made a token of that name. It is called
// with changing held, or before the store is in use.
func (s *Store) forget(t *token) {
	s.mu.Lock()
	delete(s.byName, t.Name)
	for h := range t.secrets {
		delete(s.byHash, h)
	}
	shared := s.published[t.Name] == t.record
	delete(s.published, t.Name)
	s.mu.Unlock()
	s.file.Delete(tokenKey + t.Name) // otherwise it is deleted at the next start
	s.file.Delete(useKey + t.Name)
	if shared {
		s.tell(tokenKey+t.Name, nil)
	}
}

// makeRoom reports whether there is room for a record. It forgets the record that was
// revoked longest ago, if need be. It is called with changing held.
func (s *Store) makeRoom(name string) bool {
	s.mu.RLock()
	oldest, ok := s.oldest(name)
	s.mu.RUnlock()
	if oldest != nil {
		s.forget(oldest)
	}
	return ok
}

// oldest returns the record that has to go to make room for another one; nil if none has to.
func (s *Store) oldest(name string) (oldest *token, ok bool) {
	if _, known := s.byName[name]; known || len(s.byName) < maxRecords {
		return nil, true
	}
	for _, t := range s.byName {
		if t.Revoked && (oldest == nil || t.Version < oldest.Version) {
			oldest = t
		}
	}
	return oldest, oldest != nil
}

// hearUse handles a use of a token on another node, or in the file.
func (s *Store) hearUse(name string, value []byte) {
	u, err := parseUse(value)
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.byName[name]
	if err != nil || t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.Time.After(t.last.Time) && !u.Time.Before(t.Created) {
		t.last = u
		if !slices.Contains(t.places, u.From) && len(t.places) < maxPlaces {
			t.places = append(t.places, u.From)
		}
	}
}

// publishMissing shares tokens that the shared records do not have: they were changed while
// NATS was unreachable, or the records were lost.
func (s *Store) publishMissing() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, t := range s.byName {
		if s.published[name] != t.record && !t.forgotten(time.Now()) {
			go s.publish(t.record)
		}
	}
}

// publish shares a record. It waits for NATS, but not for long.
func (s *Store) publish(r record) error {
	if s.parts.Shared == nil {
		return nil
	}
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.parts.Shared.Put(tokenKey+r.Name, value)
}

// tell shares a value, or deletes it if it is nil, in the background.
func (s *Store) tell(key string, value []byte) {
	if s.parts.Shared != nil {
		s.outbox.Put(key, value)
	}
}

// Run saves and shares the uses of tokens until ctx ends, and forgets those that were revoked
// long ago.
func (s *Store) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if s.parts.Shared != nil {
		sharing, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the last uses are in the outbox
		defer stop()
		wg.Go(func() { s.outbox.Run(sharing, s.parts.Shared, s.parts.Log) })
	}
	ticker := time.NewTicker(saveEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.saveUses()
			return nil
		case now := <-ticker.C:
			s.saveUses()
			s.changing.Lock()
			s.prune(now)
			s.changing.Unlock()
		}
	}
}

// saveUses saves and shares uses that are not saved yet.
func (s *Store) saveUses() {
	s.changing.Lock() // the use of a token that was revoked must not be saved
	defer s.changing.Unlock()
	uses := make(map[*token]use)
	s.mu.RLock()
	for _, t := range s.byName {
		t.mu.Lock()
		if t.last != t.saved && !t.Revoked {
			uses[t] = t.last
		}
		t.mu.Unlock()
	}
	s.mu.RUnlock()
	for t, u := range uses {
		if err := s.file.Put(useKey+t.Name, u); err != nil {
			s.parts.Log.Warn("when tokens were used is not saved; it is tried again", "err", err)
			return
		}
		t.mu.Lock()
		t.saved = u
		t.mu.Unlock()
		if value, err := json.Marshal(u); err == nil {
			s.tell(useKey+t.Name, value)
		}
	}
}

// Close closes the file.
func (s *Store) Close() error { return s.file.Close() }

// Len returns how many tokens there are.
func (s *Store) Len() (n int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, t := range s.byName {
		if !t.Revoked {
			n++
		}
	}
	return n
}

// List returns the tokens, by name.
func (s *Store) List() []ferrule.Token {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := []ferrule.Token{}
	for _, t := range s.byName {
		if !t.Revoked {
			all = append(all, t.describe(time.Now()))
		}
	}
	slices.SortFunc(all, func(a, b ferrule.Token) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Ended reports whether the token with an ID was revoked; there may be another one of its
// name. Known is false if this node has no record of the token. It may then be revoked and
// forgotten, or be new on another node.
func (s *Store) Ended(name, id string) (ended, known bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.byName[name]
	if t == nil {
		return true, false
	}
	if id == t.id() {
		return t.Revoked, true
	}
	created, err := strconv.ParseInt(id, 36, 64)
	return true, err != nil || created < t.Created.UnixMicro()
}

// describe returns a token without its secret. It is called with Store.mu held.
func (t *token) describe(now time.Time) ferrule.Token {
	d := ferrule.Token{
		Name: t.Name, ID: t.id(), Scopes: t.Scopes.Names(), Devices: t.who().DevicePatterns(), Created: t.Created, Expires: t.Expires,
		Expired: !t.Expires.IsZero() && !now.Before(t.Expires),
	}
	if now.Before(t.record.Overlap) {
		d.Overlap = t.record.Overlap
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d.Used, d.From = t.last.Time, t.last.From
	return d
}
