package api

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// deviceIndex has all devices in the order of their IDs, ready to be searched. It follows the
// fleet.
type deviceIndex struct {
	mu      sync.Mutex
	entries map[string]*deviceEntry
	order   []*deviceEntry  // as it was when it was last asked for; shared
	changed map[string]bool // IDs that have changed since

	counts    DeviceFilters
	counted   []*deviceEntry // those that are in counts
	countedAt time.Time
}

// deviceEntry is a device that can be searched. It is not changed once it is in order.
type deviceEntry struct {
	dev      *ferrule.Device
	manifest *ferrule.Manifest
	code     string
	name     string // in lower case, as the following
	model    string
	text     string // all that words are searched in
}

// Put implements ferrule.DeviceWatcher.
func (x *deviceIndex) Put(dev *ferrule.Device, m *ferrule.Manifest) {
	if dev.ID != ferrule.GatewayID {
		x.set(dev.ID, &deviceEntry{dev: dev, manifest: m})
	}
}

// Remove implements ferrule.DeviceWatcher.
func (x *deviceIndex) Remove(id string) { x.set(id, nil) }

func (x *deviceIndex) set(id string, e *deviceEntry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.entries == nil {
		x.entries, x.changed = make(map[string]*deviceEntry), make(map[string]bool)
	}
	x.changed[id] = true
	if e == nil {
		delete(x.entries, id)
	} else {
		x.entries[id] = e
	}
}

// sorted returns all devices in the order of their IDs. The result is shared and read-only.
func (x *deviceIndex) sorted() []*deviceEntry {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.changed) == 0 {
		return x.order
	}
	for id := range x.changed {
		if e := x.entries[id]; e != nil {
			e.prepare()
		}
	}
	const few = 8
	if len(x.changed)*few > len(x.entries) {
		x.order = slices.SortedFunc(maps.Values(x.entries), func(a, b *deviceEntry) int { return strings.Compare(a.dev.ID, b.dev.ID) })
	} else {
		x.order = slices.Clone(x.order)
		for id := range x.changed {
			x.place(id, x.entries[id])
		}
	}
	clear(x.changed)
	return x.order
}

// place puts an entry into the order, or removes it if it is nil.
func (x *deviceIndex) place(id string, e *deviceEntry) {
	at, found := slices.BinarySearchFunc(x.order, id, func(e *deviceEntry, id string) int { return strings.Compare(e.dev.ID, id) })
	switch {
	case found && e != nil:
		x.order[at] = e
	case found:
		x.order = slices.Delete(x.order, at, at+1)
	case e != nil:
		x.order = slices.Insert(x.order, at, e)
	}
}

// prepare sets what is searched. Fields are separated so that no word spans two.
func (e *deviceEntry) prepare() {
	d := e.dev
	e.name, e.model = strings.ToLower(d.ID), strings.ToLower(d.Model)
	all := []string{d.ID, d.Title, d.Model, d.Version, d.Address, d.Transport, d.Protocol, d.Hub, d.Node, string(d.State), string(d.Trust), string(d.Kind)}
	all = append(all, d.Aliases...)
	for _, labels := range []map[string]string{d.Labels, d.Claims} {
		for key, value := range labels {
			all = append(all, key+"="+value)
		}
	}
	if e.code != "" {
		all = append(all, e.code)
	}
	e.text = strings.ToLower(strings.Join(all, "\n"))
}

// needsPerson reports whether a device waits for a decision.
func (e *deviceEntry) needsPerson() bool {
	return e.dev.Trust == ferrule.TrustPending || e.dev.Waiting > 0
}

// stateRank sorts devices that need a person first, then those that are not online.
func (e *deviceEntry) stateRank() string {
	switch {
	case e.needsPerson():
		return "0"
	case e.dev.State == ferrule.StateOffline:
		return "1"
	case e.dev.State == ferrule.StateReleased:
		return "2"
	}
	return "3"
}

// codeEntries returns the devices that show a code and are not admitted yet.
func (a *API) codeEntries(who ferrule.Principal) (all []*deviceEntry) {
	if a.parts.Devices.Codes == nil || who.Role != ferrule.Person || who.Devices != "" {
		return nil
	}
	shown := a.parts.Devices.Codes()
	if len(shown) == 0 {
		return nil
	}
	known := make(map[string]bool)
	for _, e := range a.devices.sorted() {
		known[e.dev.Address] = true
	}
	for _, shown := range shown {
		if known[shown.Device.Address] {
			continue
		}
		e := &deviceEntry{dev: shown.Device, code: shown.Code}
		e.prepare()
		all = append(all, e)
	}
	return all
}

// row returns a device as a row, without its values.
func (a *API) row(e *deviceEntry, seen ferrule.Visibility) DeviceRow {
	d := e.dev
	row := DeviceRow{
		ID: d.ID, Title: d.Title, State: string(d.State), Since: d.Since, Reason: d.Reason, Trust: string(d.Trust), Code: e.code,
		Model: d.Model, Version: d.Version, Kind: string(d.Kind), Previous: string(d.Previous), Changed: d.Changed, Waiting: d.Waiting,
		Transport: d.Transport, Protocol: d.Protocol, Address: d.Address, Hub: d.Hub, Node: d.Node, Labels: d.Labels, Claims: d.Claims, Notes: d.Notes,
	}
	if a.parts.Devices.Stopped != nil {
		row.Stopped = a.parts.Devices.Stopped(d)
	}
	row.Status = statusOfDevice(d, row.Stopped)
	if e.manifest != nil {
		for i := range e.manifest.Tools {
			if t := &e.manifest.Tools[i]; t.Quarantine == "" && seen.Tool(d, t) {
				row.Tools++
			}
		}
	}
	return row
}

// statusOfDevice returns the state of a device as people are told: what needs them first.
func statusOfDevice(d *ferrule.Device, stopped string) string {
	switch {
	case d.Trust == ferrule.TrustPending:
		return "new"
	case d.State == ferrule.StateReleased:
		return "released"
	case d.State == ferrule.StateOffline && strings.HasPrefix(d.Reason, "reconnecting"):
		return "reconnecting"
	case d.State == ferrule.StateOffline:
		return "offline"
	case stopped != "":
		return "stopped"
	case d.Waiting > 0:
		return "changed"
	}
	return "online"
}

// MaxValues is the number of main values in a row.
const MaxValues = 4

// addValues adds the latest values and the switch of each row. of returns the manifest of a
// row and what of it is shown.
func (a *API) addValues(ctx context.Context, rows []DeviceRow, of func(i int) (*ferrule.Manifest, ferrule.Visibility), devices []*ferrule.Device, who ferrule.Principal) error {
	if a.parts.Devices.Values == nil {
		return nil
	}
	var ids []string
	for _, row := range rows {
		if row.Fold == nil && row.Code == "" {
			ids = append(ids, row.ID)
		}
	}
	latest, err := a.parts.Devices.Values.LatestOf(ctx, ids)
	if err != nil {
		return err
	}
	for i := range rows {
		row := &rows[i]
		all := latest[row.ID]
		if row.Fold != nil || len(all) == 0 {
			continue
		}
		for _, l := range all {
			if l.Time.After(row.Heard) {
				row.Heard = l.Time
			}
		}
		m, seen := of(i)
		if row.Trust == string(ferrule.TrustAdopted) && who.Scopes.Has(ferrule.ScopeChange) {
			row.Switch = switchOf(devices[i], m, seen, all)
		}
		for _, l := range mainValues(all) {
			if len(row.Values) == MaxValues {
				row.More++
				continue
			}
			row.Values = append(row.Values, DeviceValue{l.Signal, l.Value, l.Unit, l.State, l.Time})
		}
	}
	return nil
}

// mainValues sorts values: the state of a switch first, then those with a unit, numbers, and
// states.
func mainValues(all []ferrule.Latest) []ferrule.Latest {
	rank := func(l ferrule.Latest) int {
		switch {
		case l.State && isSwitchName(l.Signal):
			return 0
		case IsMinor(l.Signal):
			return 4
		case l.State:
			return 3
		case l.Unit != "":
			return 1
		}
		return 2
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(x, y ferrule.Latest) int { return cmp.Compare(rank(x), rank(y)) })
	return all
}

// IsMinor reports whether a signal says little about what a device does.
func IsMinor(signal string) bool {
	return strings.Contains(signal, "battery") || strings.Contains(signal, "linkquality") || strings.Contains(signal, "rssi")
}

// isSwitchName reports whether a state is the one that a switch sets.
func isSwitchName(signal string) bool {
	return slices.Contains([]string{"light", "relay", "switch", "on", "state", "power"}, signal)
}

// switchOf returns the tool that switches a device on and off, if there is one and the device
// reports its state under the same name. It must not endanger.
func switchOf(dev *ferrule.Device, m *ferrule.Manifest, seen ferrule.Visibility, latest []ferrule.Latest) *DeviceSwitch {
	if m == nil {
		return nil
	}
	for i := range m.Tools {
		t := &m.Tools[i]
		at := slices.IndexFunc(latest, func(l ferrule.Latest) bool { return l.Signal == t.Name && l.State })
		if at < 0 || t.Effect != ferrule.Changes || t.Quarantine != "" || !seen.Tool(dev, t) {
			continue
		}
		if argument, ok := booleanArgument(t.Input); ok {
			return &DeviceSwitch{Tool: t.Name, Argument: argument, On: latest[at].Value != 0}
		}
	}
	return nil
}

// booleanArgument returns the only boolean argument of a tool, if nothing else is required.
func booleanArgument(input json.RawMessage) (name string, ok bool) {
	var s struct {
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	if json.Unmarshal(input, &s) != nil {
		return "", false
	}
	for key, p := range s.Properties {
		if p.Type == "boolean" {
			if ok {
				return "", false
			}
			name, ok = key, true
		}
	}
	return name, ok && !slices.ContainsFunc(s.Required, func(r string) bool { return r != name })
}
