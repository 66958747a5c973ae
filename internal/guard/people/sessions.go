package people

import (
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// Limits of sessions. The oldest one ends if there are too many.
const (
	idleTime             = 30 * time.Minute
	sessionTime          = 12 * time.Hour
	maxSessions          = 1024
	maxSessionsPerPerson = 16
)

// CSRFField is the field of a form that has the CSRF token. CSRFHeader is the header of a
// request without a form.
const (
	CSRFField  = "csrf"
	CSRFHeader = "X-CSRF-Token"
)

// maxForm limits a form, in bytes.
const maxForm = 64 << 10

// session is a browser that a person has logged in with. Its ID is kept as a hash only.
type session struct {
	who         ferrule.Principal
	role        ferrule.PersonRole
	version     int64 // of the person's record when it began
	began, used time.Time
}

// ended reports whether a session is over. It is called with mu held.
func (p *People) ended(s *session, now time.Time) bool {
	return elapsed(now, s.used) >= idleTime || elapsed(now, s.began) >= sessionTime || s.version != p.version(s.who.Name)
}

// loginID returns the ID of the logins of a person with a version of the record. They end
// together, when the person is removed, is logged out or gets another role.
func loginID(version int64) string { return strconv.FormatInt(version, 36) }

// Ended reports whether logins of a person with an ID have ended. Known is false if this node
// has no record that says so.
func (p *People) Ended(name, id string) (ended, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	version, err := strconv.ParseInt(id, 36, 64)
	now := p.version(name)
	return err != nil || version != now, err != nil || version <= now
}

// begin begins a session. Its ID is always new: an ID that came with the request may be
// known to somebody else. The session that the browser had ends.
func (p *People) begin(w http.ResponseWriter, r *http.Request, who ferrule.Principal, role ferrule.PersonRole, version int64) {
	id, old := rand.Text(), cookie(r, p.cookieName(r, sessionCookie))
	now := time.Now()
	who.TokenID = loginID(version)
	p.mu.Lock()
	delete(p.sessions, sha256.Sum256([]byte(old)))
	if len(p.sessions) >= maxSessions {
		maps.DeleteFunc(p.sessions, func(_ [sha256.Size]byte, s *session) bool { return p.ended(s, now) })
	}
	p.dropOldest(maxSessionsPerPerson, func(s *session) bool { return s.who.Name == who.Name })
	if len(p.sessions) >= maxSessions {
		p.dropOldest(maxSessions, func(*session) bool { return true })
	}
	p.sessions[sha256.Sum256([]byte(id))] = &session{who: who, role: role, version: version, began: now, used: now}
	known := p.known[who.Name].Role != ""
	if known {
		p.logins[who.Name] = now.Round(0)
	}
	p.mu.Unlock()
	if known {
		if err := p.file.Put(loginPrefix+keyOf(who.Name), now.Round(0)); err != nil {
			p.parts.Log.Warn("the time of a login is not stored", "err", err)
		}
	}
	p.setCookie(w, r, sessionCookie, id, 0)
}

// dropOldest ends the session that was not used for longest, if there is no room for
// another one that matches. It is called with mu held.
func (p *People) dropOldest(limit int, match func(*session) bool) {
	n := 0
	var oldest [sha256.Size]byte
	var used time.Time
	for id, s := range p.sessions {
		if !match(s) {
			continue
		}
		if n++; n == 1 || s.used.Before(used) {
			oldest, used = id, s.used
		}
	}
	if n >= limit {
		delete(p.sessions, oldest)
	}
}

// Current returns the person who has logged in with the browser that sends a request, and
// the CSRF token for forms. The session counts as used.
func (p *People) Current(r *http.Request) (who ferrule.Principal, csrf string, ok bool) {
	return p.current(r, true)
}

// Peek returns the same as Current, but the session does not count as used: what a page asks
// for by itself must not keep a session alive.
func (p *People) Peek(r *http.Request) (who ferrule.Principal, csrf string, ok bool) {
	return p.current(r, false)
}

func (p *People) current(r *http.Request, use bool) (who ferrule.Principal, csrf string, ok bool) {
	id := cookie(r, p.cookieName(r, sessionCookie))
	if id == "" || !usable(p.parts.Origin(r)) {
		return ferrule.Principal{}, "", false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	hash, now := sha256.Sum256([]byte(id)), time.Now()
	s := p.sessions[hash]
	if s == nil {
		return ferrule.Principal{}, "", false
	}
	if p.ended(s, now) {
		delete(p.sessions, hash)
		return ferrule.Principal{}, "", false
	}
	if use {
		s.used = now
	}
	return s.who, p.mac("csrf", id), true
}

// Session returns the person who has logged in with the browser that sends a request, and
// the CSRF token for forms. If there is none, it answers the request with the login page,
// which leads back to the same URL, and ok is false.
func (p *People) Session(w http.ResponseWriter, r *http.Request) (who ferrule.Principal, csrf string, ok bool) {
	if who, csrf, ok = p.Current(r); ok {
		return who, csrf, true
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, "/login?"+url.Values{"return": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
		return who, "", false
	}
	p.page(w, http.StatusUnauthorized, view{Title: "You are not logged in", Text: "Your session has ended. Nothing was changed. Log in, then try again.", Login: true})
	return who, "", false
}

// CSRF reports whether a request that changes something comes from a page of the gateway
// that was made for this session. It reads the form.
func (p *People) CSRF(r *http.Request) bool {
	_, want, ok := p.Current(r)
	return ok && p.fromForm(r, want)
}

// fromForm reports whether a POST comes from a form of ours with a token.
func (p *People) fromForm(r *http.Request, want string) bool {
	if r.Method != http.MethodPost || new(http.CrossOriginProtection).Check(r) != nil {
		return false
	}
	if got := r.Header.Get(CSRFHeader); got != "" {
		return equal(got, want)
	}
	if r.PostForm == nil {
		r.Body = http.MaxBytesReader(nil, r.Body, maxForm)
		if r.ParseForm() != nil {
			return false
		}
	}
	return equal(r.PostForm.Get(CSRFField), want)
}

// logout ends the session of a request.
func (p *People) logout(w http.ResponseWriter, r *http.Request) {
	id := cookie(r, p.cookieName(r, sessionCookie))
	p.mu.Lock()
	delete(p.sessions, sha256.Sum256([]byte(id)))
	p.mu.Unlock()
	p.setCookie(w, r, sessionCookie, "", -1)
}

// The names of cookies. With TLS they begin with __Host-: browsers then refuse them from
// other hosts, and without TLS. Otherwise they end with the port: browsers have one set of
// cookies for all ports of a host, and another server there must not replace ours by chance.
const (
	sessionCookie = "ferrule"
	visitCookie   = "ferrule-login"
)

func (p *People) cookieName(r *http.Request, name string) string {
	origin := p.parts.Origin(r)
	if strings.HasPrefix(origin, "https://") {
		return "__Host-" + name
	}
	if u, err := url.Parse(origin); err == nil && u.Port() != "" {
		return name + "-" + u.Port()
	}
	return name
}

// setCookie sets a cookie, or deletes it if age is negative. It is sent with navigation
// from other sites (SameSite=Lax), because that is how a browser comes from an agent that
// asks for consent, from an issuer or from a chat with a link. Strict would make people log
// in again each time. What changes something is a POST, which has no cookie from there.
func (p *People) setCookie(w http.ResponseWriter, r *http.Request, name, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: p.cookieName(r, name), Value: value, Path: "/", MaxAge: age, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: strings.HasPrefix(p.parts.Origin(r), "https://"),
	})
}

// cookie returns the value of a cookie; empty if there is none, or several: then another
// site may have set one of them.
func cookie(r *http.Request, name string) string {
	all := r.CookiesNamed(name)
	if len(all) != 1 {
		return ""
	}
	return all[0].Value
}

// usable reports whether others cannot read what a browser sends to an origin.
func usable(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Host))
}

func isLoopback(host string) bool {
	host = mcphttp.Hostname(host)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
