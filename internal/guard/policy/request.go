package policy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The entity types of the schema.
const (
	typeAgent     types.EntityType = "Agent"
	typePerson    types.EntityType = "Person"
	typeGroup     types.EntityType = "Group"
	typePreset    types.EntityType = "Preset"
	typeNode      types.EntityType = "Node"
	typeAction    types.EntityType = "Action"
	typeTool      types.EntityType = "Tool"
	typeDevice    types.EntityType = "Device"
	typeKind      types.EntityType = "Kind"
	typeModel     types.EntityType = "Model"
	typeLabel     types.EntityType = "Label"
	typeTransport types.EntityType = "Transport"
)

// The attributes of the context.
const (
	attrArgs     types.String = "args"
	attrApproved types.String = "approved"
	attrHour     types.String = "hour"
	attrMinute   types.String = "minute"
	attrWeekday  types.String = "weekday"
	attrTime     types.String = "time"
	attrNetwork  types.String = "network"
)

// actionNames are the actions of operations. Unsubscribe has none: to end something is
// always permitted.
var actionNames = map[ferrule.Operation]types.String{
	ferrule.CallTool: "call", ferrule.ReadResource: "read", ferrule.GetPrompt: "prompt", ferrule.Complete: "complete", ferrule.Subscribe: "subscribe",
}

// request is a call in terms of the schema. It provides the entities that rules look at;
// they are built when a rule does.
type request struct {
	who    ferrule.Principal
	via    string
	device *ferrule.Device
	kind   ferrule.Kind // that the owner accepted
	effect ferrule.Effect
	name   string

	principal, action, resource types.EntityUID
	// principals and resources are what the principal and the resource are in.
	principals, resources []types.EntityUID

	builtWho, builtTool, builtDevice *types.Entity
}

// subject is the device of a request.
type subject struct {
	*ferrule.Device
	// partOf is the Kind that the owner accepted, if another one is in use; empty if that
	// is unknown.
	partOf ferrule.Kind
	// offered is set to look at the device also as what it offers.
	offered bool
}

// subjectOf returns the device of a call.
func subjectOf(target *ferrule.Target) subject {
	s := subject{Device: target.Device}
	if target.Manifest != nil {
		s.partOf = target.Manifest.PartOf
	}
	return s
}

// kinds returns all Kinds of a device: what is in use, and what the owner accepted, before
// and after effects became stricter. Otherwise a device would leave the rules for its Kind
// when it says something else about itself. What is in use is never more than what was
// accepted, so rules for that Kind may also permit it.
func (s subject) kinds() []ferrule.Kind {
	all := []ferrule.Kind{s.Kind, s.Accepted, s.partOf}
	if s.offered {
		all = append(all, s.Offered)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(k ferrule.Kind) bool { return k == "" })
}

// newRequest returns a request. All of its parts were checked before.
func (p *Policy) newRequest(who ferrule.Principal, via string, dev subject, op ferrule.Operation, name string, effect ferrule.Effect) *request {
	q := &request{who: who, via: via, device: dev.Device, kind: cmp.Or(dev.partOf, dev.Accepted, dev.Kind), effect: effect, name: name}
	id := types.String(who.Name)
	q.principal = types.NewEntityUID(typePerson, id)
	if who.Role == ferrule.Agent {
		q.principal = types.NewEntityUID(typeAgent, id)
		q.principals = append(q.principals, types.NewEntityUID(typePreset, types.String(p.preset(who.Name))))
	}
	groups := p.memberOf[q.principal]
	for _, group := range groups {
		q.principals = append(q.principals, types.NewEntityUID(typeGroup, types.String(group)))
	}
	for group := range strings.SplitSeq(who.Groups, ",") {
		if group != "" && !slices.Contains(groups, group) {
			q.principals = append(q.principals, types.NewEntityUID(typeGroup, types.String(group)))
		}
	}
	if via == "" {
		via = p.cfg.Node
	}
	q.principals = append(q.principals, types.NewEntityUID(typeNode, types.String(via)))

	q.action = types.NewEntityUID(typeAction, actionNames[op])
	q.resource = toolUID(dev.ID, name)
	q.resources = append(q.resources, types.NewEntityUID(typeDevice, types.String(dev.ID)))
	for _, alias := range dev.Aliases {
		q.resources = append(q.resources, types.NewEntityUID(typeDevice, types.String(alias)), toolUID(alias, name))
	}
	for _, kind := range dev.kinds() {
		q.resources = append(q.resources, types.NewEntityUID(typeKind, types.String(kind)))
	}
	for _, parent := range []struct {
		t  types.EntityType
		id string
	}{{typeModel, dev.Model}, {typeTransport, dev.Transport}, {typeNode, dev.Node}} {
		if parent.id != "" {
			q.resources = append(q.resources, types.NewEntityUID(parent.t, types.String(parent.id)))
		}
	}
	for key, value := range dev.Labels {
		q.resources = append(q.resources, types.NewEntityUID(typeLabel, types.String(key+"="+value)))
	}
	return q
}

func toolUID(device, name string) types.EntityUID {
	return types.NewEntityUID(typeTool, types.String(device+"/"+name))
}

// Get implements types.EntityGetter.
func (q *request) Get(uid types.EntityUID) (types.Entity, bool) {
	switch uid {
	case q.principal:
		return *build(&q.builtWho, q.whoEntity), true
	case q.resource:
		return *build(&q.builtTool, q.toolEntity), true
	}
	if uid.Type == typeDevice && uid.ID == types.String(q.device.ID) {
		return *build(&q.builtDevice, q.deviceEntity), true
	}
	return types.Entity{}, false // groups, kinds, labels and so on have no attributes or parents
}

func build(kept **types.Entity, fn func() types.Entity) *types.Entity {
	if *kept == nil {
		*kept = new(types.Entity)
		**kept = fn()
	}
	return *kept
}

func (q *request) whoEntity() types.Entity {
	return types.Entity{
		UID: q.principal, Parents: types.NewEntityUIDSet(q.principals...),
		Attributes: types.NewRecord(types.RecordMap{"auth": types.String(q.who.Auth), "user": types.String(q.who.User)}),
	}
}

func (q *request) toolEntity() types.Entity {
	return types.Entity{
		UID: q.resource, Parents: types.NewEntityUIDSet(q.resources...),
		Attributes: types.NewRecord(types.RecordMap{
			"name": types.String(q.name), "effect": types.String(q.effect), "device": types.NewEntityUID(typeDevice, types.String(q.device.ID)),
		}),
	}
}

func (q *request) deviceEntity() types.Entity {
	d := q.device
	var parents []types.EntityUID
	for _, uid := range q.resources {
		if uid.Type != typeTool && uid != types.NewEntityUID(typeDevice, types.String(d.ID)) {
			parents = append(parents, uid)
		}
	}
	tags := make(types.RecordMap, len(d.Labels))
	for key, value := range d.Labels {
		tags[types.String(key)] = types.String(value)
	}
	return types.Entity{
		UID: types.NewEntityUID(typeDevice, types.String(d.ID)), Parents: types.NewEntityUIDSet(parents...), Tags: types.NewRecord(tags),
		Attributes: types.NewRecord(types.RecordMap{
			"id": types.String(d.ID), "kind": types.String(q.kind), "model": types.String(d.Model), "version": types.String(d.Version),
			"transport": types.String(d.Transport), "protocol": types.String(d.Protocol), "node": types.String(d.Node),
		}),
	}
}

// context returns the context of a call.
func (q *request) context(args map[string]any, decimals bool, now time.Time) types.RecordMap {
	m := types.RecordMap{
		attrArgs: record(args, false), attrApproved: types.False,
		attrHour: types.Long(now.Hour()), attrMinute: types.Long(now.Minute()), attrWeekday: types.String(strings.ToLower(now.Weekday().String())),
		attrTime: types.NewDatetime(now), attrNetwork: types.String(q.network()),
	}
	if decimals {
		m[decimalArgs] = record(args, true)
	}
	return m
}

// network returns where the caller is. One that is not known to be on this machine is remote.
func (q *request) network() string {
	switch q.who.Auth {
	case ferrule.AuthLoopback, ferrule.AuthSocket, ferrule.AuthStdio:
		if q.via == "" {
			return "local"
		}
	}
	return "remote"
}
