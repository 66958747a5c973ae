// Package console is the web interface of the gateway: pages for people, their live
// updates, and the JSON API below [api.Prefix].
//
//	browser ─▶ session, CSRF ─▶ page ─▶ api ─▶ pipeline, as person:NAME
//	                            live ◀─ hub ◀─ devices, events, measurements
//
// A page is a template in templates/ and a handler in a file of the same name. The handler
// asks the api, as JSON clients do, and draws what it returns. Pages work without scripts
// for looking and deciding: forms are forms and links are links. Scripts add live values,
// curves and shortcuts.
//
// Texts of devices and agents are drawn by html/template only. A page has no inline script
// or style, so the Content-Security-Policy of all pages forbids them.
package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/console/static"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// People are the people who have logged in with a browser.
type People interface {
	// Current returns the person who sends a request, and the CSRF token for forms.
	Current(r *http.Request) (who ferrule.Principal, csrf string, ok bool)
	// Peek does the same, but does not keep the session alive.
	Peek(r *http.Request) (who ferrule.Principal, csrf string, ok bool)
	// Session does the same as Current, or answers the request with the login page.
	Session(w http.ResponseWriter, r *http.Request) (who ferrule.Principal, csrf string, ok bool)
	// CSRF reports whether a request comes from a form of the person's session.
	CSRF(r *http.Request) bool
}

// Fleet reports all devices and their changes until stop is called.
type Fleet interface {
	WatchDevices(w ferrule.DeviceWatcher) (stop func())
}

// Streams has what happens on all nodes, as it happens.
type Streams interface {
	// Listen calls fn with new events until stop is called. fn must not block.
	Listen(fn func(ferrule.Event), only ...ferrule.EventType) (stop func())
	// Samples calls fn with new readings of a device until stop is called. fn must not
	// block. An empty signal selects all.
	Samples(device, signal string, fn func(ferrule.Reading)) (stop func())
}

// CallWatcher calls fn with the devices that have new records, until stop is called. fn must not
// block.
type CallWatcher interface {
	Watch(fn func(devices []string)) (stop func())
}

// Parts is what a console is built from.
type Parts struct {
	API     *api.API
	People  People
	Fleet   Fleet
	Streams Streams
	Calls   CallWatcher
	// Header returns what the frame of each page shows.
	Header  func(ctx context.Context, who ferrule.Principal) Header
	Version string
	Log     *slog.Logger
}

// Console serves the pages.
type Console struct {
	parts Parts
	api   *api.API
	hub   *hub
	mux   *http.ServeMux
	// routes are the patterns of all pages and streams.
	routes []string
	key    string // of what this run signs

	streams streamCount
	sparks  sparkCache
	listed  liveValues
	drawn   drawings
	calls   runningCalls
	wires   wires
}

// New returns a Console. It must be closed.
func New(parts Parts) *Console {
	c := &Console{parts: parts, api: parts.API, hub: newHub(parts.Fleet, parts.Streams), mux: http.NewServeMux(), key: rand.Text()}
	if parts.Calls != nil {
		c.hub.stops = append(c.hub.stops, parts.Calls.Watch(c.hub.called))
	}
	c.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/devices", http.StatusSeeOther) })
	c.mux.HandleFunc("/", c.unknown)
	c.mux.HandleFunc("GET "+static.Prefix, static.Serve)
	operations := c.api.Handler(c.apiSession)
	c.mux.HandleFunc(api.Prefix+"/", func(w http.ResponseWriter, r *http.Request) {
		_, csrf, _ := parts.People.Peek(r)
		operations.ServeHTTP(w, r.WithContext(api.WithCSRF(r.Context(), csrf)))
	})
	c.livePage("GET /live", func(*visit) (live, error) { return nothing{}, nil })
	c.devicesRoutes()
	c.deviceRoutes()
	c.historyRoutes()
	c.approvalsRoutes()
	c.stopRoutes()
	c.activityRoutes()
	c.agentsRoutes()
	c.rulesRoutes()
	c.watchesRoutes()
	c.systemRoutes()
	return c
}

// unknown answers for an address that has no page. Only people who have logged in see it in
// the frame of the console.
func (c *Console) unknown(w http.ResponseWriter, r *http.Request) {
	who, csrf, ok := c.parts.People.Peek(r)
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case !ok:
		http.NotFound(w, r)
	default:
		c.fail(&visit{w: w, r: r, who: who, csrf: csrf}, ferrule.Errorf(ferrule.NotFound, "there is no page at this address").WithHint("choose a page on the left, or search for a device"))
	}
}

// Close ends the subscriptions of the console.
func (c *Console) Close() {
	c.hub.close()
	c.calls.close()
	c.wires.close()
}

// Routes returns the patterns of all pages and streams of live updates.
func (c *Console) Routes() []string { return slices.Clone(c.routes) }

// policy is the Content-Security-Policy of all pages.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves the pages.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "same-origin")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
	head.Set("Cache-Control", "no-store")
	c.mux.ServeHTTP(w, r)
}

// visit is one request of a person who has logged in.
type visit struct {
	w    http.ResponseWriter
	r    *http.Request
	who  ferrule.Principal
	csrf string
}

// ctx returns the context of the request.
func (v *visit) ctx() context.Context { return v.r.Context() }

// isHTMX reports whether a script of ours wants a part of a page.
func (v *visit) isHTMX() bool { return v.r.Header.Get("HX-Request") == "true" }

// page adds a page. A pattern with POST is checked to come from a form of ours. The error
// of a handler is shown as a page.
func (c *Console) page(pattern string, fn func(v *visit) error) {
	c.routes = append(c.routes, pattern)
	c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		who, csrf, ok := c.parts.People.Session(w, r)
		if !ok {
			return
		}
		v := &visit{w, r, who, csrf}
		if err := readForm(w, r); err != nil {
			c.fail(v, err)
			return
		}
		if r.Method == http.MethodPost && !c.parts.People.CSRF(r) {
			c.fail(v, ferrule.Errorf(ferrule.Denied, "nothing was changed, because the request did not come from a page of this gateway").
				WithHint("open the page again, and try there"))
			return
		}
		if err := fn(v); err != nil {
			c.fail(v, err)
		}
	})
}

// maxForm limits a form that a person sends, with its files, in bytes. It is somewhat more
// than the arguments of a call may have.
const maxForm = 1 << 20

// readForm reads the form of a POST.
func readForm(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		return nil
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseMultipartForm(maxForm)
	if err != nil && !errors.Is(err, http.ErrNotMultipart) {
		return ferrule.Errorf(ferrule.Invalid, "the form has more than %d MB, or ended early", maxForm>>20)
	}
	return nil
}

// apiSession is the api.Session of browsers.
func (c *Console) apiSession(r *http.Request) (ferrule.Principal, error) {
	who, _, ok := c.parts.People.Current(r)
	if !ok {
		return who, api.NotLoggedIn()
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && !c.parts.People.CSRF(r) {
		return who, ferrule.Errorf(ferrule.Denied, "the CSRF token of the session is missing").WithHint("send it in the header X-CSRF-Token; GET %s/session returns it", api.Prefix)
	}
	return who, nil
}

// redirect sends the browser to another page after a form was handled.
func (v *visit) redirect(format string, args ...any) error {
	to := fmt.Sprintf(format, args...)
	if v.isHTMX() {
		v.w.Header().Set("HX-Redirect", to)
		return nil
	}
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
	return nil
}
