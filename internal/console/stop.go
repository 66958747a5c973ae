package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// stopRoutes adds Stop, which is one press on any page, and Resume, which is a decision.
func (c *Console) stopRoutes() {
	c.page("POST /stop", c.stop)
	c.page("GET /resume", c.askResume)
	c.page("POST /resume", c.resume)
}

// stop stops everything. A person who pressed it without scripts sees the page again.
func (c *Console) stop(v *visit) error {
	if _, err := c.api.Stop(v.ctx(), v.who, builtin.StopInput{}); err != nil {
		return err
	}
	if v.isHTMX() {
		v.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return v.redirect("%s", v.back())
}

// back returns the page of the gateway that the request came from.
func (v *visit) back() string {
	from, err := url.Parse(v.r.Referer())
	if err != nil || from.Host != v.r.Host || strings.HasPrefix(from.RequestURI(), "//") {
		return "/devices"
	}
	return from.RequestURI()
}

// resumeView is what the page and the dialog of Resume show.
type resumeView struct {
	CSRF string
	May  bool // whether the person may resume
	Stop api.StopState
}

func newResumeView(who ferrule.Principal, csrf string, stop api.StopState) resumeView {
	return resumeView{csrf, who.Scopes.Has(ferrule.ScopeAdmin), stop}
}

// Resume returns what the dialog shows.
func (p page) Resume() resumeView { return newResumeView(p.Who, p.CSRF, p.Header.Stop) }

// askResume shows what may have run, and asks whether devices may move again.
func (c *Console) askResume(v *visit) error {
	return c.render(v, http.StatusOK, page{Title: "Resume", Section: "devices"}, "resume-page", newResumeView(v.who, v.csrf, c.api.StopState()))
}

func (c *Console) resume(v *visit) error {
	if _, err := c.api.Resume(v.ctx(), v.who, builtin.ResumeInput{Devices: v.r.PostForm["device"]}); err != nil {
		return err
	}
	return v.redirect("/devices")
}

// stopTools are the outcomes of stop tools, as the banner counts them.
type stopTools struct {
	Done               int
	MayHaveRun, Failed []api.StopTool
}

func countStopTools(r *api.StopReport) (n stopTools) {
	for _, t := range r.Tools {
		switch {
		case t.Error == "":
			n.Done++
		case t.MayHaveRun:
			n.MayHaveRun = append(n.MayHaveRun, t)
		default:
			n.Failed = append(n.Failed, t)
		}
	}
	return n
}

// callerName returns the name of a caller for people: those of people stand alone.
func callerName(caller string) string {
	role, name, ok := strings.Cut(caller, ":")
	switch {
	case !ok:
		return caller
	case role == string(ferrule.Person):
		return name
	}
	return role + " " + name
}
