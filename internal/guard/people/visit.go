package people

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// visit is a browser on its way to log in. All of it is in a signed cookie, so that
// browsers that never come back cost nothing.
type visit struct {
	// ID is what the form of a link, and the state, nonce and verifier of a login through an
	// issuer are made from. They are good in this browser only.
	ID string `json:"id"`
	// Return is where the browser goes afterward: a path of the gateway, or empty.
	Return string `json:"return,omitempty"`
	Began  int64  `json:"began"`
}

// Limits of visits. Browsers accept cookies of up to 4 KiB.
const (
	visitTime = 15 * time.Minute
	maxReturn = 2500
	maxVisit  = 4000
)

// newVisit begins a visit.
func (p *People) newVisit(w http.ResponseWriter, r *http.Request, back string) visit {
	v := visit{ID: rand.Text(), Return: localPath(back), Began: time.Now().Unix()}
	data, _ := json.Marshal(v) // strings and numbers
	text := base64.RawURLEncoding.EncodeToString(data)
	p.setCookie(w, r, visitCookie, text+"."+p.mac("visit", text), int(visitTime/time.Second))
	return v
}

// visitOf returns the visit of the browser that sends a request.
func (p *People) visitOf(r *http.Request) (visit, bool) {
	return p.parseVisit(cookie(r, p.cookieName(r, visitCookie)), time.Now())
}

// parseVisit reads the cookie of a visit.
func (p *People) parseVisit(value string, now time.Time) (v visit, ok bool) {
	text, mac, _ := strings.Cut(value, ".")
	if len(value) > maxVisit || !equal(mac, p.mac("visit", text)) {
		return visit{}, false
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(data, &v) != nil || now.Sub(time.Unix(v.Began, 0)) >= visitTime {
		return visit{}, false
	}
	return v, true
}

// localPath returns a path of the gateway, with its query, or "" if a browser could
// understand it as something else: browsers read \ as /, and skip control characters.
func localPath(path string) string {
	u, err := url.Parse(path)
	if err != nil || len(path) > maxReturn || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.Contains(path, `\`) ||
		u.Scheme != "" || u.Host != "" || u.User != nil || strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return ""
	}
	return path
}
