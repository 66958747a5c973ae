package console

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/console/draw"
	"github.com/ferrulehq/ferrule/internal/console/static"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

//go:embed templates/*.html
var templateFiles embed.FS

// templates are all templates, by name. Most commands need none, and parsing takes 10 ms.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"static":     static.URL,
		"icon":       icon,
		"time":       timeOf,
		"ago":        ago,
		"countdown":  func(until time.Time) string { return ferrule.Countdown(time.Until(until)) },
		"seconds":    func(until time.Time) int { return max(0, int(time.Until(until)/time.Second)) },
		"join":       strings.Join,
		"commands":   commands,
		"approvalID": approvalID,
		"caller":     callerName,
		"stopTools":  countStopTools,
		"sentence":   capital,
		"rounded":    rounded,
		"state":      stateOf,
		"effect":     effectOf,
		"amount":     roundedCount,
		"filter":     filterOf,
		"pair":       func(a, b string) [2]string { return [2]string{a, b} },
		"plural":     plural,
		"signal":     signalName,
		"transport":  transportName,
		"value":      draw.Value,
		"unit":       draw.Unit,
		"json":       func(v any) (string, error) { data, err := json.Marshal(v); return string(data), err },
		"deviceIcon": deviceIcon,
		"stateWord":  stateWord,
		"thousands":  withCommas[uint64],
		"bytes":      func(n uint64) string { return bytesText(int64(n)) },
		"megabytes":  func(n uint64) uint64 { return n >> 20 },
		"clock":      func(t time.Time) string { return t.Local().Format("15:04:05") },
		"millis":     func(t time.Time) string { return t.Local().Format(".000") },
		"short":      func(hash string) string { return hash[:min(4, len(hash))] + "…" + hash[max(0, len(hash)-4):] },
		"add":        func(a, b int) int { return a + b },
	}).ParseFS(templateFiles, "templates/*.html"))
})

// icon returns an icon of the sprite. The word beside it is its name for screen readers.
func icon(name string, classes ...string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg class="%s" aria-hidden="true"><use href="#i-%s"/></svg>`,
		template.HTMLEscapeString(strings.Join(append([]string{"i"}, classes...), " ")), template.HTMLEscapeString(name)))
}

// timeOf returns a time element: the time of day, with the date on hover.
func timeOf(t time.Time) template.HTML {
	if t.IsZero() {
		return ""
	}
	t = t.Local()
	words := ferrule.FormatTime(t)
	if age := time.Since(t); age >= 0 && age < 12*time.Hour { // at night too
		words = t.Format("15:04:05")
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, t.Format(time.RFC3339), t.Format("2006-01-02 15:04:05"), words))
}

// ago returns how long ago a time was, up to an hour; then the time.
func ago(t time.Time) template.HTML {
	d := time.Since(t)
	switch {
	case t.IsZero():
		return ""
	case d < 2*time.Second:
		return "now"
	case d < time.Minute:
		return template.HTML(fmt.Sprintf("%d s ago", int(d/time.Second)))
	case d < time.Hour:
		return template.HTML(fmt.Sprintf("%d min ago", int(d/time.Minute)))
	}
	return timeOf(t)
}

// capital returns a text with its first letter in upper case.
func capital(text string) string { return mapFirst(unicode.ToUpper, text) }

// mapFirst returns a text with its first letter mapped.
func mapFirst(to func(rune) rune, text string) string {
	first, n := utf8.DecodeRuneInString(text)
	if n == 0 {
		return text
	}
	return string(to(first)) + text[n:]
}

// rounded returns a number for a narrow place: 12,345 as 12k.
func rounded(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%dk", n/1000)
}

// Header is what the frame of each page shows.
type Header struct {
	// Devices and Agents are how many there are. Waiting is how many decisions wait for the
	// person.
	Devices, Agents, Waiting int
	// Node is the name of this node, and Nodes is how many others there are.
	Node  string
	Nodes int
	Stop  api.StopState
}

// page is what the layout shows.
type page struct {
	Title string
	// Section is the entry of the navigation that the page belongs to.
	Section string
	// Live is the URL of the page's live updates; empty if it has none but the header's.
	Live string
	// Body is set by render.
	Body    template.HTML
	Header  Header
	Who     ferrule.Principal
	CSRF    string
	Version string
}

// render writes a page: a template in the layout.
func (c *Console) render(v *visit, status int, p page, name string, data any) error {
	var body bytes.Buffer
	if err := templates().ExecuteTemplate(&body, name, data); err != nil {
		return fmt.Errorf("page %s: %w", name, err)
	}
	p.Body, p.Who, p.CSRF, p.Version = template.HTML(body.String()), v.who, v.csrf, c.parts.Version
	p.Header = c.parts.Header(v.ctx(), v.who)
	if p.Live == "" {
		p.Live = "/live"
	}
	return write(v.w, status, "layout", p)
}

// fragment writes a part of a page.
func (c *Console) fragment(v *visit, status int, name string, data any) error {
	return write(v.w, status, name, data)
}

// write writes a template.
func write(w http.ResponseWriter, status int, name string, data any) error {
	var body bytes.Buffer
	if err := templates().ExecuteTemplate(&body, name, data); err != nil {
		return fmt.Errorf("template %s: %w", name, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(body.Bytes())
	return nil
}

// Plain writes a page for people who may not have logged in: a title and a body, without
// navigation. The caller sets the headers.
func Plain(w io.Writer, title string, body template.HTML) error {
	return templates().ExecuteTemplate(w, "plain", plainPage{title, body})
}

type plainPage struct {
	Title string
	Body  template.HTML
}

// html returns a template as HTML, for live updates.
func html(name string, data any) (string, error) {
	var body bytes.Buffer
	err := templates().ExecuteTemplate(&body, name, data)
	return body.String(), err
}

// fail writes an error as a page, or as a note in the page that asked.
func (c *Console) fail(v *visit, err error) {
	e := ferrule.AsError(err)
	if e.Code == ferrule.Internal {
		c.parts.Log.Error("a page failed", "page", ferrule.Clean(v.r.URL.Path, ferrule.MaxWord), "err", err)
	}
	status := api.Status(err)
	if v.isHTMX() {
		err = c.fragment(v, status, "failure", e)
	} else {
		err = c.render(v, status, page{Title: "This did not work"}, "failed", e)
	}
	if err != nil {
		c.parts.Log.Error("the page of an error failed", "err", err)
	}
}
