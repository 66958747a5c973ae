package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// systemRoutes adds the pages of the gateway itself.
func (c *Console) systemRoutes() {
	c.page("GET /system", c.system)
	c.page("GET /system/doctor", c.doctor)
	c.page("POST /system/doctor", c.runDoctor)
	c.page("POST /system/people", c.addPerson)
	c.page("POST /system/people/{name}", c.changePerson)
}

// systemPage is what the page shows. What only an owner sees is nil for others.
type systemPage struct {
	CSRF string
	Who  ferrule.Principal
	api.SystemInfo
	Up       string
	Problems []string
	Calls    int // in the last minute
	Stores   []storeView
	Owner    bool
	Doctor   doctorView
	Config   []configLine
	Defaults []configLine
	People   []ferrule.KnownPerson
	Roles    []string
	// Note says what was done.
	Note string
	Link *ferrule.LoginLink
}

// storeView is something on disk, with its limit.
type storeView struct {
	Name, Size, Hint, Label string
	// Used and Limit are in MB; Limit is 0 if there is none.
	Used, Limit int64
}

// doctorView is what the doctor found.
type doctorView struct {
	api.DoctorOutput
	CSRF     string
	Problems []findingView
	// Fine is how many checks are fine, and Areas are theirs.
	Fine  int
	Areas string
}

// findingView is a finding, with where to go next.
type findingView struct {
	api.Finding
	Tone, Icon, Link, LinkText string
}

// configLine is a line of the configuration, as in the file.
type configLine struct {
	Indent, Name, Value, Class, Note string
}

func (c *Console) system(v *visit) error {
	p, err := c.systemPage(v)
	if err != nil {
		return err
	}
	return c.render(v, http.StatusOK, page{Title: "System", Section: "system"}, "system", p)
}

// systemPage collects what a person may know.
func (c *Console) systemPage(v *visit) (p systemPage, err error) {
	info, err := c.api.System(v.ctx(), v.who, api.NoInput{})
	if err != nil {
		return p, err
	}
	p = systemPage{CSRF: v.csrf, Who: v.who, SystemInfo: info, Up: upFor(time.Since(info.Started)), Stores: stores(info.Storage), Owner: v.who.Scopes.Has(ferrule.ScopeAdmin), Roles: []string{"viewer", "operator", "owner"}}
	status, err := c.api.Status(v.ctx(), v.who, api.NoInput{})
	if err != nil {
		p.Problems = append(p.Problems, ferrule.AsError(err).Message)
	}
	p.Problems = slices.Concat(p.Problems, status.Brokers, status.Homes, status.Endpoints, status.Hooks)
	if !info.Working {
		p.Problems = append(p.Problems, "The engine does not work. "+info.Reason)
	}
	if !info.Journal.Working {
		p.Problems = append(p.Problems, "The journal cannot be written, so nothing can be changed. "+info.Journal.Problem)
	}
	if !info.History.Working {
		p.Problems = append(p.Problems, "Measurements are not recorded. "+info.History.Problem)
	}
	for _, call := range c.api.RecentCalls(v.who, "", 200) {
		if time.Since(call.Time) < time.Minute {
			p.Calls++
		}
	}
	if !p.Owner {
		return p, nil
	}
	return p, c.ownerParts(v, &p)
}

// ownerParts adds what only an owner sees.
func (c *Console) ownerParts(v *visit, p *systemPage) error {
	var err error
	if p.Doctor, err = c.doctorView(v); err != nil {
		return err
	}
	values, err := c.api.Config(v.ctx(), v.who, api.NoInput{})
	if err != nil {
		return err
	}
	p.Config, p.Defaults = configLines(values.Values)
	people, err := c.api.People(v.ctx(), v.who, api.NoInput{})
	p.People = people.People
	return err
}

// upFor returns a duration in words.
func upFor(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d/time.Second))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d/time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d hours", int(d/time.Hour))
	}
	return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
}

// bytesText returns a size in words.
func bytesText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.0f KB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GB", float64(n)/(1<<30))
}

// stores returns what is on disk.
func stores(s api.Storage) []storeView {
	segments := "in one file"
	if s.JournalFiles > 0 {
		segments = fmt.Sprintf("in %d files", s.JournalFiles+1)
	}
	all := []storeView{
		newStore("Journal", s.Journal, 0, fmt.Sprintf("Kept %s. A new file begins after %s or %s", segments, bytesText(s.SegmentSize), days(s.SegmentAge))),
		newStore("Measurements", s.History, s.HistoryLimit, fmt.Sprintf("Raw for %s, then by the minute", days(s.RawFor))),
		newStore("Streams between nodes", s.Streams, s.StreamsLimit, "NATS, part of the gateway"),
	}
	return all
}

func newStore(name string, used, limit int64, hint string) storeView {
	s := storeView{Name: name, Size: bytesText(used), Hint: hint, Used: used >> 20, Limit: limit >> 20}
	s.Label = name + ", " + s.Size
	if limit > 0 {
		s.Label += " of " + bytesText(limit)
		s.Hint += ", at most " + bytesText(limit)
	}
	return s
}

// days returns a duration in days, if it is that long.
func days(d ferrule.Duration) string {
	if length := time.Duration(d); length >= 48*time.Hour {
		return fmt.Sprintf("%d days", int(length/(24*time.Hour)))
	}
	return time.Duration(d).String()
}

// configLines returns the configuration as lines of a file: what was set, and what is at its
// default.
func configLines(values []api.ConfigValue) (set, defaults []configLine) {
	var before, beforeDefault []string
	for _, v := range values {
		path := strings.Split(v.Key, ".")
		if v.Source == "default" {
			defaults, beforeDefault = appendLine(defaults, beforeDefault, path, v), path
			continue
		}
		set, before = appendLine(set, before, path, v), path
	}
	return set, defaults
}

// appendLine adds a value, below headings that the line before it does not share.
func appendLine(all []configLine, before, path []string, v api.ConfigValue) []configLine {
	shared := 0
	for shared < len(path)-1 && shared < len(before)-1 && path[shared] == before[shared] {
		shared++
	}
	for i := shared; i < len(path)-1; i++ {
		all = append(all, configLine{Indent: strings.Repeat("  ", i), Name: path[i]})
	}
	line := configLine{Indent: strings.Repeat("  ", len(path)-1), Name: path[len(path)-1], Value: v.Value}
	switch {
	case v.Secret:
		line.Class = "c"
	case strings.Contains(v.Value, "://"):
		line.Class = "s"
	}
	if v.Source != "default" {
		line.Note = v.Source
	}
	return append(all, line)
}

// doctorView returns the findings of the last time.
func (c *Console) doctorView(v *visit) (d doctorView, err error) {
	d.CSRF = v.csrf
	if d.DoctorOutput, err = c.api.Doctor(v.ctx(), v.who, api.NoInput{}); err != nil {
		return d, err
	}
	var areas []string
	seen := make(map[string]bool)
	for _, f := range d.Findings {
		if f.State != "fine" {
			d.Problems = append(d.Problems, newFinding(f))
			continue
		}
		if d.Fine++; !seen[f.Area] {
			seen[f.Area] = true
			areas = append(areas, f.Area)
		}
	}
	d.Areas = strings.Join(areas, ", ")
	return d, nil
}

func newFinding(f api.Finding) findingView {
	out := findingView{Finding: f, Tone: "warn", Icon: "danger"}
	switch {
	case f.State == "note":
		out.Tone, out.Icon = "info", "info"
	case f.State == "wrong":
		out.Tone = "bad"
	}
	switch f.Area {
	case "boards":
		out.Link, out.LinkText = "/devices", "Open devices"
	case "agents":
		out.Link, out.LinkText = "/agents", "Open agents"
	}
	return out
}

// doctor shows the findings; while the doctor runs, the page asks again.
func (c *Console) doctor(v *visit) error {
	if !v.isHTMX() {
		return v.redirect("/system")
	}
	d, err := c.doctorView(v)
	if err != nil {
		return err
	}
	return c.fragment(v, http.StatusOK, "doctor", d)
}

// runDoctor starts the doctor.
func (c *Console) runDoctor(v *visit) error {
	if _, err := c.api.RunDoctor(v.ctx(), v.who, api.NoInput{}); err != nil {
		return err
	}
	return c.doctor(v)
}

// addPerson adds a person who may log in.
func (c *Console) addPerson(v *visit) error {
	name := strings.TrimSpace(v.r.PostFormValue("name"))
	if _, err := c.api.AddPerson(v.ctx(), v.who, builtin.PersonRoleInput{Name: name, Role: v.r.PostFormValue("role")}); err != nil {
		return err
	}
	return v.redirect("/system#people")
}

// changePerson changes a person, or shows a link for the person.
func (c *Console) changePerson(v *visit) (err error) {
	name := v.r.PathValue("name")
	switch v.r.PostFormValue("do") {
	case "role":
		_, err = c.api.SetPersonRole(v.ctx(), v.who, builtin.PersonRoleInput{Name: name, Role: v.r.PostFormValue("role")})
	case "remove":
		_, err = c.api.RemovePerson(v.ctx(), v.who, builtin.PersonInput{Name: name})
	case "logout":
		_, err = c.api.LogoutPerson(v.ctx(), v.who, builtin.PersonInput{Name: name})
	case "link":
		return c.showLink(v, name)
	default:
		err = ferrule.Errorf(ferrule.Invalid, "the answer must be role, remove, logout or link")
	}
	if err != nil {
		return err
	}
	return v.redirect("/system#people")
}

// showLink shows a link that logs in a person. It is a secret, so it is on this page only.
func (c *Console) showLink(v *visit, name string) error {
	link, err := c.api.LoginLink(v.ctx(), v.who, name)
	if err != nil {
		return err
	}
	return c.render(v, http.StatusOK, page{Title: "Login link", Section: "system"}, "person-link", link)
}
