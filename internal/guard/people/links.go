package people

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Limits of links.
const (
	linkTime          = 5 * time.Minute
	maxLinks          = 256
	maxLinksPerPerson = 8
)

// linkPath is the path of links. The secret follows.
const linkPath = "/login/link/"

// link lets a person log in, once. Its secret is kept as a hash only.
type link struct {
	name    string
	role    ferrule.PersonRole
	version int64 // of the person's record
	expires time.Time
}

// Link makes a link that logs in one browser. Without a name, it is for the caller, who is
// an owner because of the control socket. It replaces the oldest link of that person if
// there are too many.
func (p *People) Link(by ferrule.Principal, name string) (ferrule.LoginLink, error) {
	if by.Role != ferrule.Person {
		return ferrule.LoginLink{}, ferrule.Errorf(ferrule.Denied, "only a person can make a login link; %s is not one", ferrule.Clean(by.String(), ferrule.MaxWord))
	}
	base, err := p.parts.URL()
	if err != nil {
		return ferrule.LoginLink{}, ferrule.AsError(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &link{name: name, role: p.known[name].Role, expires: time.Now().Add(linkTime)}
	switch {
	case name == "" && by.Auth != ferrule.AuthSocket:
		return ferrule.LoginLink{}, ferrule.Errorf(ferrule.Invalid, "the name of a person is missing")
	case name == "":
		l.name, l.role = by.Name, ferrule.RoleOwner
	case l.role == "":
		return ferrule.LoginLink{}, ferrule.Errorf(ferrule.NotFound, "there is no person %q", ferrule.Clean(name, ferrule.MaxWord)).
			WithHint("to add that person, run `ferrule people add %s --role operator`; to log in yourself, run `ferrule login` without --as", ferrule.Clean(name, ferrule.MaxWord))
	}
	l.version = p.version(l.name)
	if !p.makeRoom(l.name) {
		return ferrule.LoginLink{}, ferrule.Errorf(ferrule.Limited, "%d login links wait to be used, which is the limit; try again in five minutes", maxLinks)
	}
	secret := rand.Text()
	p.links[sha256.Sum256([]byte(secret))] = l
	return ferrule.LoginLink{URL: base + linkPath + secret, Name: l.name, Role: l.role, Expires: l.expires.Round(0)}, nil
}

// makeRoom drops links that have expired, and the oldest of a person who has many. It
// reports whether there is room for another one. It is called with mu held.
func (p *People) makeRoom(name string) bool {
	now := time.Now()
	maps.DeleteFunc(p.links, func(_ [sha256.Size]byte, l *link) bool { return elapsed(now, l.expires) >= 0 })
	var own [][sha256.Size]byte
	for id, l := range p.links {
		if l.name == name {
			own = append(own, id)
		}
	}
	if len(own) >= maxLinksPerPerson {
		delete(p.links, slices.MinFunc(own, func(a, b [sha256.Size]byte) int {
			return cmp.Or(p.links[a].expires.Compare(p.links[b].expires), slices.Compare(a[:], b[:]))
		}))
	}
	return len(p.links) < maxLinks
}

// findLink returns the link with a secret, if it can be used. If take is set, it is used.
func (p *People) findLink(secret string, take bool) (l link, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := sha256.Sum256([]byte(secret))
	found := p.links[id]
	if found == nil || elapsed(time.Now(), found.expires) >= 0 || found.version != p.version(found.name) {
		return link{}, false
	}
	if take {
		delete(p.links, id)
	}
	return *found, true
}

// elapsed returns the time since a moment, by the clock that shows more: the monotonic
// clock stops while a machine sleeps, and the wall clock can be set back.
func elapsed(now, since time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}
