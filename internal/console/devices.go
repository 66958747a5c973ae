package console

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// devicesRoutes adds the pages of the list of devices, and how to add one.
func (c *Console) devicesRoutes() {
	c.page("GET /devices", c.devicesPage)
	c.page("GET /devices/add", c.addDevicePage)
	c.page("POST /devices/adopt", c.adoptDevice)
	c.page("POST /devices/retry", c.retryFromList)
	c.livePage("GET /live/devices", func(v *visit) (live, error) { return c.newDevicesLive(v) })
}

// The sizes of the page.
const (
	// maxCards is the number of devices up to which they are cards, unless the person
	// chooses.
	maxCards = 60
	// maxNeeds is how many devices that need a person are listed before the others, and
	// fewNeeds how many before a table of many.
	maxNeeds, fewNeeds = 8, 3
	// hubRows is how many devices of a broker or Home Assistant are listed below the cards.
	hubRows = 8
	// maxPinned is how many devices with the label pinned are cards above a table.
	maxPinned = 12
)

// deviceList is what the page shows.
type deviceList struct {
	In   api.DevicesInput
	CSRF string
	Who  ferrule.Principal
	// View is cards or table, and Chosen is what the person chose; it may be empty.
	View, Chosen string
	// Every is set if devices of one Kind are not to be folded into one row.
	Every   bool
	Counts  api.DeviceCounts
	Filters api.DeviceFilters
	Needs   needs
	Pinned  []deviceItem
	Cards   []deviceItem
	// CardsNext leads to more cards; empty if these are all.
	CardsNext string
	Hubs      []deviceTable
	Table     *deviceTable
}

// deviceTable is a table of devices.
type deviceTable struct {
	Title  string // a broker or Home Assistant, or empty
	Nodes  []string
	Rows   []deviceItem
	Output api.DevicesOutput
	Page   *deviceList
}

// deviceItem is one device on the page.
type deviceItem struct {
	api.DeviceRow
	Page *deviceList
	// Prefix makes the elements of a device that is on the page twice differ.
	Prefix string
	// Asks is set if a call on the device waits for the person.
	Asks bool
	// Sparks are the curves of the last hour, for the values that have one.
	Sparks map[string]template.HTML
}

// needs is what waits for the person.
type needs struct {
	Count   int
	Calls   []ferrule.Approval
	Devices []deviceItem
	// More leads to those that are not listed here; empty if there are none.
	More, Previous string
}

// IsOwner reports whether the person may adopt devices.
func (p *deviceList) IsOwner() bool { return p.Who.Scopes.Has(ferrule.ScopeAdmin) }

// Live returns the URL of the live updates.
func (p *deviceList) Live() string {
	return "/live/devices?" + p.query("at", fmt.Sprint(time.Now().UnixMilli()), "drawn", p.version()).Encode()
}

// URL returns the address of this list with other values: name, value, name, value. The
// page begins at the first row, unless after is given.
func (p *deviceList) URL(changes ...string) string {
	q := p.query(append([]string{"after", ""}, changes...)...)
	if len(q) == 0 {
		return "/devices"
	}
	return "/devices?" + q.Encode()
}

func (p *deviceList) query(changes ...string) url.Values {
	q := url.Values{}
	every := ""
	if p.Every {
		every = "yes"
	}
	all := append([]string{
		"q", p.In.Q, "state", p.In.State, "label", p.In.Label, "kind", p.In.Kind, "node", p.In.Node, "hub", p.In.Hub,
		"sort", p.In.Sort, "view", p.Chosen, "every", every, "after", p.In.After,
	}, changes...)
	for i := 0; i < len(all); i += 2 {
		if q.Del(all[i]); all[i+1] != "" {
			q.Set(all[i], all[i+1])
		}
	}
	return q
}

// Filtered reports whether the person looks for something.
func (p *deviceList) Filtered() bool {
	in := p.In
	return in.Q != "" || in.Label != "" || in.Kind != "" || in.Node != "" || in.Hub != "" || in.State != ""
}

// Folded reports whether devices of one Kind are one row.
func (p *deviceList) Folded() bool {
	return !p.Every && p.In.Q == "" && p.In.Kind == "" && p.In.Hub == "" && p.In.State == "" && p.Filters.Devices > maxCards
}

// devicesQuery reads the address of the page.
func devicesQuery(v *visit) (p *deviceList, err error) {
	q := v.r.URL.Query()
	text := func(name string) string { return ferrule.Clean(q.Get(name), ferrule.MaxText) }
	p = &deviceList{CSRF: v.csrf, Who: v.who, Every: q.Get("every") == "yes", Chosen: q.Get("view")}
	p.In = api.DevicesInput{
		Q: text("q"), State: q.Get("state"), Label: text("label"), Kind: text("kind"), Node: text("node"), Hub: text("hub"), Sort: q.Get("sort"), After: q.Get("after"),
	}
	if p.In.State == "all" {
		p.In.State = ""
	}
	if p.Chosen != "" && p.Chosen != "cards" && p.Chosen != "table" {
		return nil, ferrule.Errorf(ferrule.Invalid, "view must be cards or table")
	}
	return p, nil
}

// listDevices returns what the page shows.
func (c *Console) listDevices(ctx context.Context, v *visit) (*deviceList, error) {
	p, err := devicesQuery(v)
	if err != nil {
		return nil, err
	}
	if p.Filters, err = c.api.DeviceFilters(ctx, v.who, api.NoInput{}); err != nil {
		return nil, err
	}
	if err = c.fillNeeds(ctx, p); err != nil {
		return nil, err
	}
	p.View = p.Chosen
	if p.View == "" {
		if p.View = "cards"; p.Filters.Devices > maxCards || p.In.Hub != "" {
			p.View = "table"
		}
	}
	switch {
	case p.In.State == "needs":
	case p.View == "table":
		err = c.fillTable(ctx, p)
	default:
		err = c.fillCards(ctx, p)
	}
	return p, err
}

// fillNeeds lists what waits for the person.
func (c *Console) fillNeeds(ctx context.Context, p *deviceList) error {
	in := p.In
	if in.State != "needs" {
		in.State, in.Limit, in.After = "needs", maxNeeds, ""
		if p.Filters.Devices > maxCards {
			in.Limit = fewNeeds
		}
	}
	in.Sort = "name"
	out, err := c.api.Devices(ctx, p.Who, in)
	if err != nil {
		return err
	}
	p.Counts = out.Counts
	p.Needs = needs{Count: out.Counts.Needs, Devices: c.items(ctx, p, out.Rows, false)}
	if out.Next != "" {
		p.Needs.More = p.URL("state", "needs", "after", out.Next)
		if p.In.State != "needs" {
			p.Needs.More = p.URL("state", "needs")
		}
	}
	if out.Previous != nil {
		p.Needs.Previous = p.URL("after", *out.Previous)
	}
	p.Needs.Calls = c.waitingCalls(ctx, p)
	p.Needs.Count += len(p.Needs.Calls)
	p.Counts.Needs = p.Needs.Count
	return nil
}

// waitingCalls returns the calls that wait for the person, unless the list is searched.
func (c *Console) waitingCalls(ctx context.Context, p *deviceList) (all []ferrule.Approval) {
	if !p.Who.Scopes.Has(ferrule.ScopeEndanger) || p.Filtered() && p.In.State != "needs" {
		return nil
	}
	out, err := c.api.Approvals(ctx, p.Who, builtin.ListApprovalsInput{})
	if err != nil {
		c.parts.Log.Debug("approvals cannot be listed", "err", err)
	}
	for _, a := range out.Approvals {
		if a.State == ferrule.ApprovalWaiting {
			all = append(all, a)
		}
	}
	return all
}

// fillTable lists all devices as rows.
func (c *Console) fillTable(ctx context.Context, p *deviceList) error {
	in := p.In
	if p.Folded() {
		in.View = "kinds"
	}
	table, err := c.table(ctx, p, in)
	p.Table = &table
	if err != nil || p.In.After != "" || p.Filtered() {
		return err
	}
	pinned, err := c.api.Devices(ctx, p.Who, api.DevicesInput{Label: "pinned", Trust: string(ferrule.TrustAdopted), Limit: maxPinned})
	p.Pinned = c.items(ctx, p, pinned.Rows, true)
	for i := range p.Pinned {
		p.Pinned[i].Prefix = "pinned:" // IDs of devices have no colon
	}
	return err
}

func (c *Console) table(ctx context.Context, p *deviceList, in api.DevicesInput) (deviceTable, error) {
	out, err := c.api.Devices(ctx, p.Who, in)
	return deviceTable{Title: in.Hub, Rows: c.items(ctx, p, out.Rows, true), Output: out, Page: p}, err
}

// fillCards lists devices that are reached directly as cards, and those behind each broker as
// a table. Pending devices are among those that need the person.
func (c *Console) fillCards(ctx context.Context, p *deviceList) error {
	in := p.In
	in.Trust, in.Hub, in.Limit = string(ferrule.TrustAdopted), "-", maxCards
	if p.In.Hub == "" || p.In.Hub == "-" {
		out, err := c.api.Devices(ctx, p.Who, in)
		if err != nil {
			return err
		}
		p.Cards = c.items(ctx, p, out.Rows, true)
		if out.Next != "" {
			p.CardsNext = p.URL("view", "cards", "after", out.Next)
		}
	}
	in.After = ""
	for _, hub := range p.Filters.Hubs {
		if p.In.Hub != "" && p.In.Hub != hub.Value {
			continue
		}
		in.Hub, in.Limit = hub.Value, hubRows
		table, err := c.table(ctx, p, in)
		if err != nil {
			return err
		}
		if len(table.Rows) == 0 {
			continue
		}
		for _, row := range table.Rows {
			if row.Node != "" && !slices.Contains(table.Nodes, row.Node) {
				table.Nodes = append(table.Nodes, row.Node)
			}
		}
		p.Hubs = append(p.Hubs, table)
	}
	return nil
}

// items returns rows as the page shows them.
func (c *Console) items(ctx context.Context, p *deviceList, rows []api.DeviceRow, sparks bool) []deviceItem {
	all := make([]deviceItem, len(rows))
	for i, row := range rows {
		all[i] = deviceItem{DeviceRow: row, Page: p}
		all[i].Asks = slices.ContainsFunc(p.Needs.Calls, func(a ferrule.Approval) bool { return a.Device == row.ID })
		if sparks {
			all[i].Sparks = c.sparks.of(ctx, c.api, row)
		}
	}
	return all
}

func (c *Console) devicesPage(v *visit) error {
	p, err := c.listDevices(v.ctx(), v)
	if err != nil {
		return err
	}
	v.w.Header().Set("Vary", "HX-Request")
	if v.isHTMX() && v.r.Header.Get("HX-History-Restore-Request") != "true" {
		return c.fragment(v, http.StatusOK, "devices-part", p)
	}
	return c.render(v, http.StatusOK, page{Title: "Devices", Section: "devices", Live: p.Live()}, "devices", p)
}

// adoptDevice adopts a device with a name and labels.
func (c *Console) adoptDevice(v *visit) error {
	in := api.AdoptInput{Device: v.r.PostFormValue("device"), Kind: v.r.PostFormValue("kind") != ""}
	if name := strings.TrimSpace(v.r.PostFormValue("name")); name != in.Device {
		in.Name = name
	}
	if code := v.r.PostFormValue("code"); code != "" {
		in.Device = code
	}
	var err error
	if in.Labels, err = parseLabels(v.r.PostFormValue("labels")); err != nil {
		return err
	}
	if _, err := c.api.Adopt(v.ctx(), v.who, in); err != nil {
		return err
	}
	return v.redirect("/devices")
}

// parseLabels reads labels as people write them: key=value, separated by commas.
func parseLabels(text string) (map[string]string, error) {
	labels := make(map[string]string)
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), cmp.Or(strings.TrimSpace(value), "yes")
		if err := ferrule.CheckLabel(key, value); err != nil {
			return nil, ferrule.Errorf(ferrule.Invalid, "%w", err).WithHint("write labels as key=value, separated by commas, for example room=kitchen, guarded=yes")
		}
		labels[key] = value
	}
	return labels, nil
}

// retryFromList connects a device that is offline.
func (c *Console) retryFromList(v *visit) error {
	if _, err := c.api.Retry(v.ctx(), v.who, builtin.RetryDeviceInput{Device: v.r.PostFormValue("device")}); err != nil {
		return err
	}
	return v.redirect("/devices")
}
