package homeassistant

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/describe"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// recordedPast is what the recorder of Home Assistant has of a signal.
type recordedPast struct{ ferrule.Past }

// measuredEntity is a signal and its entity.
type measuredEntity struct {
	entity string
	describe.Signal
}

// signals returns the signals of a device.
func (h *Hub) signals(address string) (all []measuredEntity) {
	h.mu.Lock()
	d := h.devices[address]
	var data []byte
	err := errors.New("no such device")
	if d != nil {
		data, err = h.offerOf(d)
	}
	h.mu.Unlock()
	if err != nil {
		return nil
	}
	offer, err := parseOffer(data)
	if err != nil {
		return nil
	}
	_, plan := describe.Device(offer)
	for id, signals := range plan.Signals {
		for _, s := range signals {
			all = append(all, measuredEntity{id, s})
		}
	}
	slices.SortFunc(all, func(a, b measuredEntity) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Latest returns the present value of each signal of a device, sorted by name. The time is that
// of the last change: Home Assistant does not report a value that stays.
func (h *Hub) Latest(address string) (all []ferrule.Latest) {
	for _, s := range h.signals(address) {
		h.mu.Lock()
		state := h.states.Get(s.entity)
		h.mu.Unlock()
		if state == nil || state.Unavailable() {
			continue
		}
		if x, ok := number(s.Signal, *state); ok {
			all = append(all, ferrule.Latest{Signal: s.Name, Unit: s.Unit, State: s.State, Sample: ferrule.Sample{Time: state.Updated, Value: x}})
		}
	}
	return all
}

// Past returns what the recorder of Home Assistant has of a signal in a time range; nil if the
// device does not have the signal.
func (h *Hub) Past(ctx context.Context, address, signal string, from, to time.Time) (*ferrule.Past, error) {
	all := h.signals(address)
	i := slices.IndexFunc(all, func(s measuredEntity) bool { return s.Name == signal })
	if i < 0 {
		return nil, nil
	}
	h.mu.Lock()
	conn := h.conn
	h.mu.Unlock()
	if conn == nil {
		return nil, errors.New("Home Assistant " + h.cfg.Home + " is unreachable")
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	s := all[i]
	p := &recordedPast{ferrule.Past{Unit: s.Unit, State: s.State}}
	var data json.RawMessage
	err := conn.Request(ctx, "history/history_during_period", map[string]any{
		"start_time": from.UTC().Format(time.RFC3339Nano), "end_time": to.UTC().Format(time.RFC3339Nano), "entity_ids": []string{s.entity},
		"significant_changes_only": false, "no_attributes": s.Attribute == "", "minimal_response": s.Attribute == "",
	}, &data)
	if unknown(err) { // the owner has switched off the recorder
		return &p.Past, nil
	}
	if err != nil {
		return nil, err
	}
	states, err := home.ReadPast(data, s.entity)
	if err != nil {
		return nil, err
	}
	p.add(s.Signal, states, from, to)
	return &p.Past, p.addHours(ctx, conn, s, from, to)
}

// add adds states in the order of time. The first may be the one before the range: a state is
// valid until the next, a measurement is not.
func (p *recordedPast) add(s describe.Signal, states []home.State, from, to time.Time) {
	var missing time.Time // since when; zero if nothing is missing
	for _, state := range states {
		at := state.Updated
		if at.Before(from) {
			if !s.State {
				continue
			}
			at = from
		}
		if !at.Before(to) {
			break
		}
		x, ok := number(s, state)
		switch {
		case ok && !missing.IsZero():
			p.Gaps = append(p.Gaps, ferrule.Gap{From: missing, To: at, Reason: ferrule.Unclear})
			missing = time.Time{}
			fallthrough
		case ok:
			p.Samples = append(p.Samples, ferrule.Sample{Time: at, Value: x})
		case missing.IsZero():
			missing = at
		}
	}
	if !missing.IsZero() {
		p.Gaps = append(p.Gaps, ferrule.Gap{From: missing, To: to, Reason: ferrule.Unclear})
	}
}

// addHours adds the hours before the first sample, if Home Assistant keeps any.
func (p *recordedPast) addHours(ctx context.Context, conn *api.Conn, s measuredEntity, from, to time.Time) error {
	if len(p.Samples) > 0 {
		to = p.Samples[0].Time.Truncate(time.Hour)
	}
	if s.Attribute != "" || s.State || to.Sub(from) < time.Hour {
		return nil
	}
	var data json.RawMessage
	err := conn.Request(ctx, "recorder/statistics_during_period", map[string]any{
		"start_time": from.UTC().Format(time.RFC3339Nano), "end_time": to.UTC().Format(time.RFC3339Nano), "statistic_ids": []string{s.entity},
		"period": "hour", "types": []string{"mean", "min", "max"},
	}, &data)
	if unknown(err) {
		return nil
	}
	if err != nil {
		return err
	}
	hours, err := home.ReadStatistics(data, s.entity)
	for _, hour := range hours {
		if hour.Start.Before(to) {
			p.Hours = append(p.Hours, hour.Point())
		}
	}
	return err
}
