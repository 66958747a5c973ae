package homeassistant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// The times of a reader.
const (
	// quietTime is how long nothing must change before everything is read again: one change by
	// the owner is several events. maxQuiet is the longest wait.
	quietTime = 500 * time.Millisecond
	maxQuiet  = 3 * time.Second
	// restFactor is how much longer than a reading takes the time between two is at least.
	restFactor = 2
	// startTime is how often a Home Assistant that is starting is asked whether it is ready.
	// retryTime is the wait after a reading has failed.
	startTime = 500 * time.Millisecond
	retryTime = 5 * time.Second
	// requestTime limits one answer.
	requestTime = 30 * time.Second
	// exposeTime is how often the exposure of entities without an entry in the registry is
	// read: no event says that it has changed.
	exposeTime = 10 * time.Second
)

// registryEvents are the events after which everything is read again. Users who are not
// administrators may subscribe to them.
var registryEvents = []string{
	"area_registry_updated", "device_registry_updated", "entity_registry_updated", "floor_registry_updated", "label_registry_updated",
	"service_registered", "service_removed", "component_loaded", "core_config_updated",
}

// errStarting is the error of read while Home Assistant is not running.
var errStarting = errors.New("Home Assistant is starting")

// reader reads what the home has over one connection.
type reader struct {
	hub    *Hub
	conn   *api.Conn
	update func(string, []transport.Sighting)
	wake   chan struct{} // has an element if something changed

	// The hub's lock guards the following fields.

	dirty time.Time // the first event since the last reading; zero if none
	last  time.Time // the last one
	// dropped reports that a message was dropped.
	dropped bool

	subscribed bool
	stop       []func()
	due        time.Time // of the next reading that no event asks for; zero for none
	rest       time.Time // no reading before
	exposed    string    // the last list
	polls      bool      // the exposure of some entities must be polled
	pollDue    time.Time
}

// serve reads what the home has until the connection is lost or ctx ends.
func (h *Hub) serve(ctx context.Context, conn *api.Conn, update func(string, []transport.Sighting)) {
	r := &reader{hub: h, conn: conn, update: update, wake: make(chan struct{}, 1), due: time.Now()}
	h.mu.Lock()
	h.complete, h.reported = false, false
	h.mu.Unlock()
	defer func() {
		for _, stop := range r.stop {
			stop()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(r.step(ctx, time.Now())))
		select {
		case <-ctx.Done():
			return
		case <-conn.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
	}
}

// step does what is due. It returns when the next step is.
func (r *reader) step(ctx context.Context, now time.Time) (next time.Time) {
	if at := r.readDue(); !at.IsZero() && !now.Before(at) {
		r.readNow(ctx)
		now = time.Now()
	} else if r.polls && !now.Before(r.pollDue) {
		r.poll(ctx)
		now = time.Now()
	}
	sightings, next := r.hub.settle(now)
	r.hub.report(sightings, r.update)
	if r.hub.dropMissing(now) {
		r.touch()
	}
	next = sooner(next, r.readDue())
	if r.polls {
		next = sooner(next, r.pollDue)
	}
	return sooner(next, now.Add(missingTime))
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// readDue returns when everything is to be read; zero if nothing asks for it.
func (r *reader) readDue() time.Time {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	at := r.due
	if !r.dirty.IsZero() {
		at = sooner(at, sooner(r.last.Add(quietTime), r.dirty.Add(maxQuiet)))
	}
	if !at.IsZero() && at.Before(r.rest) {
		at = r.rest
	}
	return at
}

// touch notes that what the home has may have changed.
func (r *reader) touch() {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.touched()
}

func (r *reader) touched() {
	r.last = time.Now()
	if r.dirty.IsZero() {
		r.dirty = r.last
	}
	r.signal()
}

func (r *reader) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// readNow reads everything, and decides when that is due again.
func (r *reader) readNow(ctx context.Context) {
	began := time.Now()
	r.hub.mu.Lock()
	r.dirty, r.last, r.due = time.Time{}, time.Time{}, time.Time{}
	r.hub.mu.Unlock()
	err := r.read(ctx)
	took := time.Since(began)
	r.rest = time.Now().Add(min(restFactor*took, time.Minute))
	var refused *api.Error
	switch {
	case err == nil || ctx.Err() != nil:
		return
	case errors.Is(err, errStarting):
		r.due = time.Now().Add(startTime)
		r.rest = time.Time{}
	default:
		r.due = time.Now().Add(retryTime)
		r.hub.log.Warn("reading Home Assistant failed", "err", err)
	}
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.hub.note = err.Error()
	// Nobody waits for a Home Assistant that says no.
	if errors.As(err, &refused) {
		r.hub.complete, r.hub.reported = true, true
	}
}

// config is the part of the answer to get_config that matters.
type config struct {
	State    string `json:"state"`
	Recovery bool   `json:"recovery_mode"`
	Units    struct {
		Temperature string `json:"temperature"`
	} `json:"unit_system"`
}

// read reads everything and reports what has changed.
func (r *reader) read(ctx context.Context) error {
	if err := r.subscribeEvents(ctx); err != nil {
		return err
	}
	var c config
	if err := r.request(ctx, "get_config", nil, &c); err != nil {
		return err
	}
	if c.Recovery {
		r.hub.report(r.hub.absentAll("Home Assistant "+r.hub.cfg.Home+" is in recovery mode"), r.update)
		r.hub.mu.Lock()
		defer r.hub.mu.Unlock()
		r.hub.complete, r.hub.reported, r.hub.note = true, true, "Home Assistant is in recovery mode: check its configuration"
		return nil
	}
	if c.State != "RUNNING" {
		return errStarting
	}
	if err := r.subscribeEntities(ctx); err != nil {
		return err
	}
	registry, err := r.readRegistry(ctx)
	if err != nil {
		return err
	}
	services, err := r.readServices(ctx)
	if err != nil {
		return err
	}
	inventory := r.hub.build(registry)
	r.polls = registry.Unregistered(inventory) && !r.hub.cfg.All && r.exposed != ""
	r.pollDue = time.Now().Add(exposeTime)
	r.hub.mu.Lock()
	r.hub.conn, r.hub.note = r.conn, ""
	r.hub.mu.Unlock()
	changed := r.hub.apply(inventory, services, c.Units.Temperature)
	r.hub.report(changed.gone, r.update)
	for _, s := range changed.gone {
		r.update(s.Address, nil)
	}
	r.hub.report(changed.sightings, r.update)
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.hub.reported = true
	return nil
}

func (r *reader) request(ctx context.Context, command string, fields map[string]any, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	if err := r.conn.Request(ctx, command, fields, out); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}

// subscribeEvents subscribes to the events that say that something has changed, once.
func (r *reader) subscribeEvents(ctx context.Context) error {
	for len(r.stop) < len(registryEvents) {
		name := registryEvents[len(r.stop)]
		if err := r.subscribe(ctx, "subscribe_events", map[string]any{"event_type": name}, func(json.RawMessage) { r.touch() }); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) subscribe(ctx context.Context, command string, fields map[string]any, fn func(json.RawMessage)) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	stop, err := r.conn.Subscribe(ctx, command, fields, fn)
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	r.stop = append(r.stop, stop)
	return nil
}

// subscribeEntities subscribes to all states, and waits until they are there.
func (r *reader) subscribeEntities(ctx context.Context) error {
	if r.subscribed {
		return nil
	}
	first := make(chan struct{})
	var begun bool
	var failed error
	if err := r.subscribe(ctx, "subscribe_entities", nil, func(event json.RawMessage) {
		err := r.hear(event, !begun)
		if !begun {
			begun, failed = true, err
			close(first)
		}
	}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	select {
	case <-first:
		if r.subscribed = failed == nil; !r.subscribed {
			last := len(r.stop) - 1
			r.stop[last]()
			r.stop = r.stop[:last]
		}
		return failed
	case <-r.conn.Done():
		return r.conn.Err()
	case <-ctx.Done():
		return fmt.Errorf("subscribe_entities: %w", ctx.Err())
	}
}

// hear applies an event of subscribe_entities. The first one replaces all states.
func (r *reader) hear(event json.RawMessage, first bool) error {
	h := r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.states
	if first {
		h.states = home.States{}
	}
	c, err := h.states.Apply(event)
	if err != nil {
		if !r.dropped {
			h.log.Warn("a message of Home Assistant was dropped; others will be dropped silently", "err", err)
		}
		if r.dropped = true; first {
			h.states = before
		}
		return err
	}
	if first {
		h.keepMissing(&before)
		return nil // nothing is reported before the reading ends
	}
	for _, id := range c.Changed {
		h.changed(id, h.states.JSON(id))
	}
	for _, id := range c.Removed {
		h.changed(id, nil)
	}
	if len(h.checks) > 0 {
		r.signal()
	}
	if c.Reshaped {
		r.touched()
	}
	return nil
}

// changed passes a state to the device of its entity.
func (h *Hub) changed(id string, state json.RawMessage) {
	d := h.owners[id]
	if d == nil {
		return
	}
	if d.link != nil {
		d.link.pushState(id, state, false)
	}
	// Only settle looks at all entities of a device: it may have very many.
	switch available := state != nil && !home.IsUnavailable(state); {
	case available == (d.absent != ""):
		h.checks[d] = struct{}{}
	case available:
		d.away = time.Time{}
	}
}

// keepMissing keeps entities that were there before Home Assistant restarted and are not now: what
// provides them may still be loading, and a device must not lose tools for that.
func (h *Hub) keepMissing(before *home.States) {
	until := time.Now().Add(missingTime)
	for id := range h.owners {
		if h.states.JSON(id) == nil && before.JSON(id) != nil {
			h.states.Miss(id)
			h.missing[id] = until
		}
	}
}

// dropMissing forgets entities that have been missing for too long. It reports whether there were
// any.
func (h *Hub) dropMissing(now time.Time) (some bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, until := range h.missing {
		if now.After(until) {
			delete(h.missing, id)
			some = h.states.DropMissed(id) || some
		}
	}
	return some
}

// readRegistry reads the lists of the home.
func (r *reader) readRegistry(ctx context.Context) (*home.Registry, error) {
	var a home.Answers
	for command, to := range map[string]*json.RawMessage{
		"config/area_registry/list": &a.Areas, "config/floor_registry/list": &a.Floors, "config/label_registry/list": &a.Labels,
		"config/device_registry/list": &a.Devices, "config/entity_registry/list": &a.Entities, "entity/source": &a.Sources,
	} {
		if err := r.request(ctx, command, nil, to); err != nil && !unknown(err) {
			return nil, err
		}
	}
	exposed, err := r.readExposed(ctx)
	if err != nil {
		return nil, err
	}
	a.Exposed, r.exposed = exposed, string(exposed)
	return home.ReadRegistry(&a)
}

// readExposed returns what the owner exposes to Assist; nil if only administrators may know.
func (r *reader) readExposed(ctx context.Context) (json.RawMessage, error) {
	var exposed json.RawMessage
	err := r.request(ctx, "homeassistant/expose_entity/list", nil, &exposed)
	var refused *api.Error
	if errors.As(err, &refused) {
		return nil, nil
	}
	return exposed, err
}

// poll reads everything again if the owner exposes other entities than before.
func (r *reader) poll(ctx context.Context) {
	r.pollDue = time.Now().Add(exposeTime)
	if exposed, err := r.readExposed(ctx); err == nil && string(exposed) != r.exposed {
		r.due = time.Now()
	}
}

// unknown reports whether Home Assistant does not know a command: it is older than the command.
func unknown(err error) bool {
	var refused *api.Error
	return errors.As(err, &refused) && refused.Code == "unknown_command"
}

// readServices reads the services, and their texts if they come without.
func (r *reader) readServices(ctx context.Context) ([]hubService, error) {
	var data, texts json.RawMessage
	if err := r.request(ctx, "get_services", nil, &data); err != nil {
		return nil, err
	}
	all, err := home.ReadServices(data, nil)
	if err != nil {
		return nil, err
	}
	if home.LacksTexts(all) {
		if err := r.request(ctx, "frontend/get_translations", map[string]any{"language": "en", "category": "services"}, &texts); err != nil && !unknown(err) {
			return nil, err
		}
		if all, err = home.ReadServices(data, texts); err != nil {
			return nil, err
		}
	}
	services := make([]hubService, len(all))
	for i := range all {
		encoded, err := json.Marshal(&all[i])
		if err != nil {
			return nil, err
		}
		services[i] = hubService{all[i], encoded}
	}
	return services, nil
}

// build returns what the home has. An entity that was only restored keeps its description.
func (h *Hub) build(registry *home.Registry) *home.Inventory {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := make(map[string]*home.Entity)
	for _, d := range h.devices {
		for i := range d.desc.Entities {
			known[d.desc.Entities[i].ID] = &d.desc.Entities[i]
		}
	}
	return registry.Build(slices.Collect(h.states.IDs()), h.states.Get, func(id string) *home.Entity { return known[id] },
		home.Choice{All: h.cfg.All, Settings: h.cfg.Settings})
}
