package oauth

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxQuery is the longest query of an authorization request.
const maxQuery = 8 << 10

// devicePath is the path of the resource of a device. The ID follows.
const devicePath = "/mcp/devices/"

// request is an authorization request whose client and redirect address are right.
type request struct {
	client    *client
	redirect  string
	state     string
	challenge string
	asked     ferrule.Scopes
	offline   bool
	device    string // the only device that is asked for; empty for all
}

// requestError is an error that the client is told.
type requestError struct{ code, text string }

func (e *requestError) Error() string { return e.text }

// challenges matches a code_challenge of S256.
var challenges = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// serveAuthorize shows the consent page, and sends the code when the form comes back. Both
// requests have the same URL and are checked alike, so nothing is remembered between them.
func (s *Server) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	protect(w)
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, POST")
		s.page(w, http.StatusMethodNotAllowed, problem{Text: "This page is for browsers."})
		return
	}
	refuse := func(who ferrule.Principal, text string) {
		if !s.allow(authorizeLimit, r) {
			w.Header().Set("Retry-After", "10")
			s.page(w, http.StatusTooManyRequests, problem{Text: "There were too many requests from your address.", Next: "Try again in a minute."})
			return
		}
		s.parts.Record(who, ferrule.AccessConsent, from(r), text, ferrule.Denied)
		s.page(w, http.StatusBadRequest, problem{Text: "A program asked for access in a way that is not safe: " + text + ".", Next: "Nothing was permitted. Close this page, and start the login in your program again."})
	}
	query, err := single(r.URL.RawQuery, maxQuery)
	if err != nil {
		refuse(stranger, err.Error())
		return
	}
	id := query.Get("client_id")
	if id == "" {
		refuse(stranger, "client_id is missing")
		return
	}
	if _, err := s.find(r.Context(), id, false); err != nil {
		refuse(stranger, err.Error())
		return
	}
	if r.Method == http.MethodPost && !sameSite(r) {
		refuse(stranger, "the answer came from a page of another site")
		return
	}
	// A document is fetched only for somebody who is logged in.
	who, csrf, ok := s.parts.Logins.Session(w, r)
	if !ok {
		return
	}
	c, err := s.find(r.Context(), id, true)
	if err != nil {
		refuse(who, err.Error())
		return
	}
	redirect := query.Get("redirect_uri")
	if redirect == "" {
		refuse(who, "redirect_uri is missing")
		return
	}
	if err := c.matchRedirect(redirect); err != nil {
		refuse(who, err.Error())
		return
	}
	// From here on, errors can be told to the client.
	req, err := s.parseRequest(r, c, query)
	var wrong *requestError
	if errors.As(err, &wrong) {
		s.parts.Record(who, ferrule.AccessConsent, from(r), c.label()+": "+wrong.text, ferrule.Denied)
		s.sendError(w, r, req, wrong)
		return
	}
	if r.Method == http.MethodGet {
		s.showConsent(w, r, http.StatusOK, who, csrf, req, "")
		return
	}
	s.answerConsent(w, r, who, csrf, req)
}

// single parses a query or form. A parameter that is there twice is refused: two programs
// might not see the same one.
func single(encoded string, most int) (url.Values, error) {
	if len(encoded) > most {
		return nil, fmt.Errorf("the request has %d bytes; limit is %d", len(encoded), most)
	}
	all, err := url.ParseQuery(encoded)
	if err != nil {
		return nil, errors.New("the request is malformed")
	}
	for name, values := range all {
		if len(values) > 1 {
			return nil, fmt.Errorf("%s is there twice", ferrule.Clean(name, ferrule.MaxWord))
		}
	}
	return all, nil
}

// sameSite reports whether a form was sent from a page of this server, as far as the browser
// says so. The CSRF token is checked in any case.
func sameSite(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host == r.Host
}

// parseRequest checks an authorization request whose client and redirect address are right.
// The error is a requestError.
func (s *Server) parseRequest(r *http.Request, c *client, query url.Values) (req request, err error) {
	req = request{client: c, redirect: query.Get("redirect_uri"), state: query.Get("state"), challenge: query.Get("code_challenge")}
	method := query.Get("code_challenge_method")
	fail := func(code, text string) (request, error) { return req, &requestError{code, text} }
	switch {
	case query.Get("request") != "":
		return fail("request_not_supported", "request objects are not supported")
	case query.Get("request_uri") != "":
		return fail("request_uri_not_supported", "request objects are not supported")
	case query.Get("response_type") != "code":
		return fail("unsupported_response_type", "response_type must be code")
	case query.Get("response_mode") != "" && query.Get("response_mode") != "query":
		return fail("invalid_request", "response_mode must be query")
	case req.challenge == "" && (!c.confidential || method != ""):
		return fail("invalid_request", "code_challenge is missing; PKCE with S256 is required")
	case req.challenge != "" && method != "S256":
		return fail("invalid_request", "code_challenge_method must be S256")
	case req.challenge != "" && !challenges.MatchString(req.challenge):
		return fail("invalid_request", "code_challenge must have 43 characters")
	}
	if req.device, err = s.parseResource(r, query.Get("resource")); err != nil {
		return fail("invalid_target", err.Error())
	}
	if req.asked, req.offline = parseScope(query.Get("scope")); len(req.asked.Names()) == 0 {
		return fail("invalid_scope", "none of these scopes is known; the scopes are "+strings.Join(ferrule.ScopeNames(), ", "))
	}
	return req, nil
}

// parseResource returns the device that a resource is for, or "" for all.
func (s *Server) parseResource(r *http.Request, resource string) (device string, err error) {
	if resource == "" {
		return "", nil
	}
	origin := s.parts.Origin(r)
	u, err := url.Parse(resource)
	if err == nil && u.User == nil && onlyProfile(u) && u.Fragment == "" && strings.EqualFold(u.Scheme+"://"+u.Host, origin) {
		path := strings.TrimSuffix(u.EscapedPath(), "/")
		if path == "/mcp" {
			return "", nil
		}
		if device, ok := strings.CutPrefix(path, devicePath); ok && ferrule.CheckID(device) == nil {
			return device, nil
		}
	}
	return "", fmt.Errorf("resource must be %s/mcp or %s%sDEVICE", origin, origin, devicePath)
}

// onlyProfile reports whether the query of a resource has nothing but a profile: that changes
// what agents are shown, not what they may do.
func onlyProfile(u *url.URL) bool {
	query := u.Query()
	return u.RawQuery == "" || len(query) == 1 && len(query["profile"]) == 1
}

// parseScope returns the known scopes in a list. Without any list it is what agents usually
// need; the person can take away from it.
func parseScope(list string) (scopes ferrule.Scopes, offline bool) {
	var known []string
	names := strings.Fields(list)
	for _, name := range names {
		if name == offlineAccess {
			offline = true
		} else if slices.Contains(ferrule.ScopeNames(), name) {
			known = append(known, name)
		}
	}
	if len(names) == 0 || offline && len(names) == 1 {
		known = []string{"read", "change", "endanger"}
	}
	scopes, _ = ferrule.ParseScopes(known)
	return scopes, offline
}

// sendError tells the client about an error. It sends nobody to another site without a
// click: anybody can register an address and make people open a link to this page.
func (s *Server) sendError(w http.ResponseWriter, r *http.Request, req request, err *requestError) {
	to := s.back(r, req, url.Values{"error": {err.code}, "error_description": {err.text}})
	if req.client.confidential || onThisMachine(req.redirect) {
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	s.page(w, http.StatusBadRequest, problem{Text: "A program asked for access in a way that is not possible here: " + err.text + ".", Next: "Nothing was permitted.", Link: to, Host: hostText(req.redirect)})
}

// back returns the address that leads back to the client.
func (s *Server) back(r *http.Request, req request, add url.Values) string {
	if req.state != "" {
		add.Set("state", req.state)
	}
	add.Set("iss", s.parts.Origin(r))
	return withAnswer(req.redirect, add)
}

// answerConsent handles the form of the consent page.
func (s *Server) answerConsent(w http.ResponseWriter, r *http.Request, who ferrule.Principal, csrf string, req request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	if err := r.ParseForm(); err != nil {
		s.page(w, http.StatusBadRequest, problem{Text: "Your answer cannot be read.", Next: "Nothing was permitted."})
		return
	}
	label := req.client.label()
	if !s.parts.Logins.CSRF(r) {
		s.parts.Record(who, ferrule.AccessConsent, from(r), label+": the answer did not come from our page", ferrule.Denied)
		s.page(w, http.StatusForbidden, problem{Text: "Your answer did not come from our page, or the page is too old.", Next: "Nothing was permitted. Start the login in your program again."})
		return
	}
	if r.PostForm.Get("answer") != "allow" {
		s.parts.Record(who, ferrule.AccessConsent, from(r), label+": denied by the person", ferrule.Denied)
		http.Redirect(w, r, s.back(r, req, url.Values{"error": {"access_denied"}, "error_description": {"the person did not permit it"}}), http.StatusSeeOther)
		return
	}
	given, err := s.granted(who, req, r.PostForm)
	if err != nil {
		s.showConsent(w, r, http.StatusBadRequest, who, csrf, req, err.Error())
		return
	}
	secret := newSecret(codePrefix)
	c := &code{client: req.client, redirect: req.redirect, challenge: req.challenge, person: who, consented: given, expires: time.Now().Add(codeTTL)}
	if !s.addCode(hashOf(secret), c) {
		s.sendError(w, r, req, &requestError{"temporarily_unavailable", "too many logins at the same time; try again in a minute"})
		return
	}
	s.parts.Record(who, ferrule.AccessConsent, from(r), fmt.Sprintf("%s: scopes %s; devices %s", label, given.Scopes, devicesText(given)), "")
	http.Redirect(w, r, s.back(r, req, url.Values{"code": {secret}}), http.StatusSeeOther)
}

func devicesText(c consented) string {
	switch {
	case c.Device != "":
		return c.Device
	case c.Devices != "":
		return ferrule.Clean(c.Devices, ferrule.MaxText)
	}
	return "all"
}

// granted returns what a person permits: what was asked, of that what the person chose, and
// of that what the person may do.
func (s *Server) granted(who ferrule.Principal, req request, form url.Values) (given consented, err error) {
	chosen, err := ferrule.ParseScopes(form["scope"])
	if err != nil {
		return given, err
	}
	given = consented{Scopes: req.asked.And(chosen).And(who.Scopes), Device: req.device, Offline: req.offline}
	if len(given.Scopes.Names()) == 0 {
		return given, errors.New("Choose at least one permission, or deny")
	}
	if req.device != "" {
		if !who.Reaches(&ferrule.Device{ID: req.device}) {
			return given, errors.New("You have no access to this device")
		}
		return given, nil
	}
	devices := form["device"]
	switch {
	case len(devices) > 0: // also if all are chosen at the same time: less is safer
		for _, id := range devices {
			if !slices.ContainsFunc(s.parts.Devices(who), func(d Device) bool { return d.ID == id }) {
				return given, errors.New("One of these devices is gone. Choose again")
			}
		}
		given.Devices, err = ferrule.CheckDevicePatterns(devices)
	case form.Get("devices") == "all":
		given.Devices = who.Devices
	default:
		return given, errors.New("Choose at least one device, or all devices")
	}
	if len(given.Devices) > maxDevices {
		return given, errors.New("These are too many devices. Choose fewer, or all devices")
	}
	return given, err
}

// addCode remembers a code, unless there are too many.
func (s *Server) addCode(of hash, c *code) bool {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.codes) >= maxCodes {
		return false
	}
	s.codes[of] = c
	return true
}
