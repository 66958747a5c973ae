package console

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// settingsView is what the gateway remembers about a device.
type settingsView struct {
	deviceFrame
	Labels  []labelView
	Facts   [][2]string
	Problem *ferrule.Error
}

// labelView is a label of a device.
type labelView struct{ Key, Value string }

// settings shows what the gateway remembers about a device, and what can be done to it.
func (c *Console) settings(v *visit) error {
	f, err := c.openDevice(v, "Settings")
	if err != nil {
		return err
	}
	return c.renderSettings(v, http.StatusOK, f, nil)
}

func (c *Console) renderSettings(v *visit, status int, f deviceFrame, problem *ferrule.Error) error {
	p := settingsView{deviceFrame: f, Facts: factsOf(f.Device), Problem: problem}
	for key, value := range f.Device.Labels {
		p.Labels = append(p.Labels, labelView{key, value})
	}
	slices.SortFunc(p.Labels, func(a, b labelView) int { return strings.Compare(a.Key, b.Key) })
	return c.renderDevice(v, status, f, page{}, "settings", p)
}

// factsOf returns what is remembered about a device, as names and values.
func factsOf(dev *ferrule.Device) (all [][2]string) {
	add := func(name, value string) {
		if value != "" {
			all = append(all, [2]string{name, ferrule.Clean(value, ferrule.MaxText)})
		}
	}
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			add(name, ferrule.FormatTime(t))
		}
	}
	add("Calls itself", dev.Title)
	add("Earlier names", strings.Join(dev.Aliases, ", "))
	add("Address", dev.Address)
	add("Behind", dev.Hub)
	add("Transport", dev.Transport)
	add("Protocol", dev.Protocol)
	add("Node", dev.Node)
	add("Trust", string(dev.Trust))
	add("Kind", string(dev.Kind))
	at("Accepted", dev.AcceptedAt)
	at("Changed", dev.Changed)
	add("State", string(dev.State)+", since "+ferrule.FormatTime(dev.Since))
	add("Reason", dev.Reason)
	at("Restarted", dev.Restarted)
	var claims []string
	for key, value := range dev.Claims {
		claims = append(claims, key+"="+value)
	}
	slices.Sort(claims)
	add("Says about itself", strings.Join(claims, ", "))
	for _, note := range dev.Notes {
		add("Note", note)
	}
	return all
}

// changeSettings does what a form of the page asks for.
func (c *Console) changeSettings(v *visit) error {
	f, err := c.openDevice(v, "Settings")
	if err != nil {
		return err
	}
	to, err := c.change(v, f, v.r.PostFormValue("action"))
	if err != nil {
		e := ferrule.AsError(err)
		return c.renderSettings(v, http.StatusUnprocessableEntity, f, e)
	}
	return v.redirect("%s", to)
}

// change changes a device, and returns the page to show then.
func (c *Console) change(v *visit, f deviceFrame, action string) (to string, err error) {
	id, value := f.Device.ID, func(name string) string { return strings.TrimSpace(v.r.PostFormValue(name)) }
	to = f.Path + "/settings"
	switch action {
	case "rename":
		var out builtin.RenameOutput
		out, err = c.api.Rename(v.ctx(), v.who, builtin.RenameInput{Device: id, Name: value("name")})
		to = devicePath(out.Device) + "/settings"
	case "label":
		_, err = c.api.Label(v.ctx(), v.who, builtin.LabelInput{Device: id, Set: map[string]string{value("key"): value("value")}})
	case "unlabel":
		_, err = c.api.Label(v.ctx(), v.who, builtin.LabelInput{Device: id, Remove: []string{v.r.PostFormValue("key")}})
	case "release":
		var length time.Duration
		if length, err = ferrule.ParseDuration(value("for")); err != nil {
			return to, ferrule.Errorf(ferrule.Invalid, "the duration %w", err)
		}
		_, err = c.api.Release(v.ctx(), v.who, builtin.ReleaseDeviceInput{Device: id, For: ferrule.Duration(length)})
	case "retry":
		_, err = c.api.Retry(v.ctx(), v.who, builtin.RetryDeviceInput{Device: id})
		to = f.Path
	case "forget":
		if value("confirmed") != id {
			return f.Path + "/forget", nil
		}
		_, err = c.api.Forget(v.ctx(), v.who, builtin.TrustInput{Device: id})
		to = "/devices"
	default:
		err = ferrule.Errorf(ferrule.Invalid, "unknown action %q", ferrule.Clean(action, ferrule.MaxWord))
	}
	return to, err
}

// forget asks before a device is forgotten: as a dialog, or as a page.
func (c *Console) forget(v *visit) error {
	f, err := c.openDevice(v, "Settings")
	if err != nil {
		return err
	}
	if v.isHTMX() {
		return c.fragment(v, http.StatusOK, "forget-dialog", f)
	}
	return c.renderDevice(v, http.StatusOK, f, page{}, "forget-page", f)
}
