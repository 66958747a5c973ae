package tokens

import (
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// New is what a new token permits.
type New struct {
	Name    string
	Scopes  ferrule.Scopes
	Devices []string      // patterns; empty for all
	Expires time.Duration // zero for never
}

// Changed is the result of a change.
type Changed struct {
	Token ferrule.Token
	// Secret is shown once. It is empty after Revoke.
	Secret ferrule.Secret
	// Note says what may be missing on other nodes; empty if nothing is.
	Note string

	record record
}

// Add makes a token.
func (s *Store) Add(by ferrule.Principal, n New) (Changed, error) {
	return s.share(func() (Changed, error) { return s.add(by, n) })
}

// Rotate gives a token another secret. The old one is accepted for the overlap.
func (s *Store) Rotate(by ferrule.Principal, name string, overlap time.Duration) (Changed, error) {
	return s.share(func() (Changed, error) { return s.rotate(by, name, overlap) })
}

// Revoke ends a token at once.
func (s *Store) Revoke(by ferrule.Principal, name string) (Changed, error) {
	return s.share(func() (Changed, error) { return s.revoke(by, name) })
}

// share makes a change, and tells the other nodes. That may take a second, in which this
// node can hear of other changes.
func (s *Store) share(change func() (Changed, error)) (Changed, error) {
	s.changing.Lock()
	c, err := change()
	s.changing.Unlock()
	if err != nil {
		return c, err
	}
	if err := s.publish(c.record); err != nil {
		c.Note = "Other nodes do not know this yet: " + err.Error() + "."
	}
	return c, nil
}

func (s *Store) add(by ferrule.Principal, n New) (Changed, error) {
	if err := ferrule.CheckID(n.Name); err != nil {
		return Changed{}, ferrule.Errorf(ferrule.Invalid, "%w", err).WithHint("choose another name, for example claude")
	}
	devices, err := ferrule.CheckDevicePatterns(n.Devices)
	switch {
	case err != nil:
		return Changed{}, ferrule.Errorf(ferrule.Invalid, "%w", err)
	case len(devices) > maxDevices:
		return Changed{}, ferrule.Errorf(ferrule.Invalid, "the device patterns have %d characters; limit is %d", len(devices), maxDevices).
			WithHint("use fewer patterns, with * for any part of a name")
	case n.Expires < 0 || n.Expires > maxLifetime:
		return Changed{}, ferrule.Errorf(ferrule.Invalid, "a token can be good for at most ten years").WithHint("give a time such as 90d, or none")
	}
	known, exists := s.find(n.Name)
	switch {
	case exists:
		return Changed{}, ferrule.Errorf(ferrule.Invalid, "there is already a token %s", n.Name).
			WithHint("for another secret, run `ferrule token rotate %s`; to end it, run `ferrule token revoke %s`", n.Name, n.Name)
	case s.parts.Taken(n.Name):
		return Changed{}, ferrule.Errorf(ferrule.Invalid, "there is already a token %s in auth.tokens of the configuration", n.Name).WithHint("choose another name")
	case s.Len() >= maxTokens:
		return Changed{}, ferrule.Errorf(ferrule.Invalid, "there are %d tokens, which is the limit", maxTokens).WithHint("revoke one that is not used; `ferrule token list` shows when each was last used")
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	r := record{Name: n.Name, Version: known.next(), Scopes: n.Scopes, Devices: devices, Created: now, Lifetime: ferrule.Duration(n.Expires)}
	if n.Expires > 0 {
		r.Expires = now.Add(n.Expires)
	}
	if err := within(by, r); err != nil {
		return Changed{}, err
	}
	secret, h := newSecret()
	r.Hash = h
	return s.change(by, ferrule.AccessTokenAdded, r, secret, "added with scopes "+r.Scopes.String())
}

func (s *Store) rotate(by ferrule.Principal, name string, overlap time.Duration) (Changed, error) {
	if overlap < 0 || overlap > MaxOverlap {
		return Changed{}, ferrule.Errorf(ferrule.Invalid, "the overlap can be at most %d days", MaxOverlap/(24*time.Hour)).WithHint("give a time such as 10m")
	}
	r, exists := s.find(name)
	if !exists {
		return Changed{}, s.unknown(name)
	}
	if err := within(by, r); err != nil {
		return Changed{}, err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	old := r
	secret, h := newSecret()
	r.Version, r.Hash, r.Previous, r.Overlap = r.next(), h, hash{}, time.Time{}
	if r.Lifetime > 0 {
		r.Expires = now.Add(time.Duration(r.Lifetime))
	}
	if overlap > 0 && (old.Expires.IsZero() || now.Before(old.Expires)) {
		r.Previous, r.Overlap = old.Hash, now.Add(overlap)
		if !old.Expires.IsZero() && old.Expires.Before(r.Overlap) {
			r.Overlap = old.Expires
		}
	}
	return s.change(by, ferrule.AccessTokenRotated, r, secret, "rotated; the old secret is accepted for "+ferrule.Duration(overlap).String())
}

func (s *Store) revoke(by ferrule.Principal, name string) (Changed, error) {
	r, exists := s.find(name)
	if !exists {
		return Changed{}, s.unknown(name)
	}
	s.mu.RLock()
	described := s.byName[name].describe(time.Now())
	s.mu.RUnlock()
	r.Version, r.Revoked = r.next(), true
	c, err := s.change(by, ferrule.AccessTokenRevoked, r, "", "revoked")
	c.Token = described
	return c, err
}

// find returns the record of a token, or what is left of one that was revoked.
func (s *Store) find(name string) (r record, exists bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.byName[name]
	if t == nil {
		return record{}, false
	}
	return t.record, !t.Revoked
}

// unknown returns the error for a token that does not exist.
func (s *Store) unknown(name string) error {
	if s.parts.Taken(name) {
		return ferrule.Errorf(ferrule.Invalid, "the token %s is in auth.tokens of the configuration", name).
			WithHint("change it there, then run `ferrule reload`")
	}
	return ferrule.Errorf(ferrule.NotFound, "there is no token %q", ferrule.Clean(name, ferrule.MaxWord)).WithHint("to see the tokens, run `ferrule token list`")
}

// within returns an error if a caller would get a token that permits more than its own.
// Agents may not make tokens at all (see [ferrule.Principal.CanCall]); this is for people
// whose login permits less than everything, and should that ever change.
func within(by ferrule.Principal, r record) error {
	allowed := by.Scopes.Has(r.Scopes.And(ferrule.LimitTo(ferrule.ScopeAdmin)))
	if by.Devices != "" {
		own := by.DevicePatterns()
		allowed = allowed && r.Devices != ""
		for _, pattern := range r.who().DevicePatterns() {
			allowed = allowed && slices.Contains(own, pattern)
		}
	}
	if !allowed {
		return ferrule.Errorf(ferrule.Denied, "the token would permit more than %s may do", by).WithHint("a person can make it with `ferrule token add`")
	}
	return nil
}

// change stores a record: a new secret must not be given away before it is on disk, and a
// secret that is revoked ends at once. It is called with changing held.
func (s *Store) change(by ferrule.Principal, event ferrule.AccessEvent, r record, secret ferrule.Secret, what string) (c Changed, err error) {
	apply := func() {
		s.makeRoom(r.Name)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.set(r)
		c.Token = s.byName[r.Name].describe(time.Now())
	}
	if r.Revoked {
		apply()
	}
	if err := s.file.Put(tokenKey+r.Name, r); err != nil {
		if r.Revoked {
			return c, ferrule.Errorf(ferrule.Internal, "%s is revoked, but would be accepted again after a restart: %w", r.Name, err).WithHint("free some disk space, then revoke it again")
		}
		return c, ferrule.Errorf(ferrule.Internal, "the token cannot be saved, and nothing has changed: %w", err).WithHint("check the disk")
	}
	if !r.Revoked {
		apply()
	}
	if r.Revoked {
		s.file.Delete(useKey + r.Name)
		s.tell(useKey+r.Name, nil)
	}
	c.Secret, c.record = secret, r
	s.parts.Record(by, event, "", "token "+r.Name+" "+what, "")
	return c, nil
}
