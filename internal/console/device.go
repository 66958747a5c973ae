package console

import (
	"bytes"
	"context"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// deviceRoutes adds the pages of one device: its tools, manifest and settings.
func (c *Console) deviceRoutes() {
	c.page("GET /devices/{device}", c.control)
	c.page("POST /devices/{device}/call", c.callTool)
	c.page("GET /devices/{device}/calls/{call}", c.lookAtCall)
	c.page("POST /devices/{device}/calls/{call}", c.cancelCall)
	c.page("GET /devices/{device}/manifest", c.manifest)
	c.page("POST /devices/{device}/manifest", c.accept)
	c.page("GET /devices/{device}/settings", c.settings)
	c.page("POST /devices/{device}/settings", c.changeSettings)
	c.page("GET /devices/{device}/forget", c.forget)
	c.livePage("GET /live/devices/{device}/control", c.newControlLive)
	c.livePage("GET /live/devices/{device}", func(v *visit) (live, error) {
		f, err := c.openDevice(v, "")
		return &deviceLive{c, v, f.Device.ID, nil}, err
	})
}

// The tabs of a device. Each has its own address: the path of the device, a slash and the
// name in lower case. Control is at the path itself.
var deviceTabs = []string{"Control", "History", "Events", "Resources", "Wire", "Manifest", "Settings"}

// deviceFrame is what surrounds each page of a device.
type deviceFrame struct {
	api.Found
	Who  ferrule.Principal
	CSRF string
	// Tab is one of deviceTabs.
	Tab  string
	Tabs []deviceTab
	// Path is the path of the device.
	Path string
	Body template.HTML
}

// deviceTab is a link to a page of a device.
type deviceTab struct{ Name, Path string }

// devicePath returns the path of a device's pages.
func devicePath(id string) string { return "/devices/" + url.PathEscape(id) }

// openDevice returns the frame of a page of the device that the request names. An earlier
// name of the device leads to its pages too.
func (c *Console) openDevice(v *visit, tab string) (f deviceFrame, err error) {
	f = deviceFrame{Who: v.who, CSRF: v.csrf, Tab: tab, Found: api.Found{Device: &ferrule.Device{}}}
	found, err := c.api.Find(v.who, v.r.PathValue("device"))
	if err != nil {
		return f, err
	}
	f.Found, f.Path = found, devicePath(found.Device.ID)
	return f, nil
}

// renderDevice writes a page of a device: a template in the frame of the device.
func (c *Console) renderDevice(v *visit, status int, f deviceFrame, p page, name string, data any) error {
	var body bytes.Buffer
	if err := templates().ExecuteTemplate(&body, name, data); err != nil {
		return fmt.Errorf("page %s: %w", name, err)
	}
	f.Body = template.HTML(body.String())
	for _, tab := range deviceTabs {
		path := f.Path
		if tab != deviceTabs[0] {
			path += "/" + strings.ToLower(tab)
		}
		f.Tabs = append(f.Tabs, deviceTab{tab, path})
	}
	p.Section = "devices"
	if p.Title = f.Device.ID; f.Tab != deviceTabs[0] {
		p.Title += " " + strings.ToLower(f.Tab)
	}
	if p.Live == "" {
		p.Live = "/live" + f.Path
	}
	return c.render(v, status, p, "device", f)
}

// LabelTexts returns the owner's labels, sorted, as key=value, or the key alone.
func (f deviceFrame) LabelTexts() (all []string) {
	for key, value := range f.Device.Labels {
		text := key
		if value != "" {
			text += "=" + value
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

// IsOwner reports whether the person may change what the gateway knows about devices.
func (f deviceFrame) IsOwner() bool { return f.Who.Scopes.Has(ferrule.ScopeAdmin) }

// deviceLive keeps the title of a device current. Pages of a device with more that changes
// embed it, or set more.
type deviceLive struct {
	*Console
	v  *visit
	id string
	// more is called with each update; it may be nil.
	more func(ctx context.Context, f deviceFrame, out *updates) error
}

func (l *deviceLive) watch(changed func(string)) func() {
	return l.hub.subscribe(changed, deviceTopic+l.id, topicStop)
}

func (l *deviceLive) update(ctx context.Context, _ []string, out *updates) error {
	found, err := l.api.Find(l.v.who, l.id)
	if err != nil {
		return err
	}
	f := deviceFrame{Found: found, Who: l.v.who, CSRF: l.v.csrf, Path: devicePath(found.Device.ID)}
	if err := out.element("device-head", "device-head", f); err != nil {
		return err
	}
	if l.more == nil {
		return nil
	}
	return l.more(ctx, f, out)
}

// Badge returns the state of the device. Beside the title, it is filled.
func (f deviceFrame) Badge() badge {
	b := stateOf(f.Status())
	b.Bare, b.Title = false, ferrule.Clean(f.Device.Reason, ferrule.MaxReason)
	return b
}

// Icon returns the icon of the device.
func (f deviceFrame) Icon() string {
	return deviceIcon(f.Device.Protocol, f.Device.Model, f.Device.ID, f.Device.Title)
}

// Transport returns the word for the transport of the device.
func (f deviceFrame) Transport() string { return transportName(f.Device.Transport) }
