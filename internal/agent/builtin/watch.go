package builtin

import (
	"context"
	"encoding/json"
	"reflect"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/watch"
)

// Watches are the watches of all nodes.
type Watches interface {
	// List returns those that a caller may know, or one of them by its ID or name. The call
	// is that of the tool.
	List(ctx context.Context, call *ferrule.Call, only string) ([]watch.Status, error)
	// Set adds or changes a watch. The call is that of the tool.
	Set(ctx context.Context, call *ferrule.Call, s watch.Settings) (watch.Status, error)
	Enable(who ferrule.Principal, name string, on bool) (watch.Status, error)
	Remove(who ferrule.Principal, name string) (watch.Status, error)
}

// WatchTool and ListWatchesTool are the names of the tools.
const (
	WatchTool       = "watch"
	ListWatchesTool = "list_watches"
)

// ListWatchesInput has the arguments of list_watches.
type ListWatchesInput struct {
	Watch string `json:"watch,omitempty" jsonschema:"ID or name; default: all"`
}

// ListWatchesOutput is the result of list_watches.
type ListWatchesOutput struct {
	Watches []watch.Status `json:"watches"`
}

// ListWatches returns the tool list_watches.
func ListWatches(watches Watches) Tool {
	const text = "Lists your watches: conditions that notify or call a tool when they become true, with their last hit and what became of it."
	return Typed(ListWatchesTool, text, ferrule.Reads, func(ctx context.Context, call *ferrule.Call, in ListWatchesInput) (ListWatchesOutput, error) {
		all, err := watches.List(ctx, call, in.Watch)
		return ListWatchesOutput{all}, err
	}).Undescribed()
}

// WatchInput has the arguments of watch.
type WatchInput struct {
	Watch   string               `json:"watch,omitempty" jsonschema:"ID or name of a watch to change; default: a new one"`
	Remove  bool                 `json:"remove,omitempty" jsonschema:"remove it"`
	Enabled *bool                `json:"enabled,omitempty" jsonschema:"enable or disable it"`
	Name    string               `json:"name,omitempty" jsonschema:"one line; default: the condition"`
	When    *condition.Condition `json:"when,omitempty" jsonschema:"the condition"`
	Call    *WatchCall           `json:"call,omitempty" jsonschema:"what to call, as you and under the rules of that moment; default: only notify"`
	Notify  []string             `json:"notify,omitempty" jsonschema:"webhook, mqtt; subscribers of ferrule://watches/ID are always told"`
	Every   ferrule.Duration     `json:"every,omitempty" jsonschema:"minimum time between hits; default 1m"`
	PerHour int                  `json:"per_hour,omitempty" jsonschema:"default 12"`
	Expires ferrule.Duration     `json:"expires,omitempty" jsonschema:"such as 7d; default: never"`
}

// WatchCall is the call of a watch.
type WatchCall struct {
	Device string         `json:"device"`
	Tool   string         `json:"tool"`
	Args   map[string]any `json:"args,omitempty"`
}

// SetWatch returns the tool watch.
func SetWatch(watches Watches) Tool {
	const text = "Sets, changes or removes a watch: a condition on a signal or event that is checked also while you are away. When it becomes true, it notifies and can call one tool."
	return Typed(WatchTool, text, ferrule.Changes, func(ctx context.Context, call *ferrule.Call, in WatchInput) (watch.Status, error) {
		const hint = "leave out all other arguments; gateway__list_watches has the IDs"
		switch {
		case in.Remove && !in.only(WatchInput{Watch: in.Watch, Remove: true}):
			return watch.Status{}, ferrule.Errorf(ferrule.Invalid, "remove: needs watch, and nothing else").WithHint(hint)
		case in.Remove:
			return watches.Remove(call.Principal, in.Watch)
		case in.Enabled != nil && !in.only(WatchInput{Watch: in.Watch, Enabled: in.Enabled}):
			return watch.Status{}, ferrule.Errorf(ferrule.Invalid, "enabled: needs watch, and nothing else").WithHint(hint)
		case in.Enabled != nil:
			return watches.Enable(call.Principal, in.Watch, *in.Enabled)
		case in.When == nil:
			return watch.Status{}, ferrule.Errorf(ferrule.Invalid, "when: must be the condition, for example {\"device\":\"tank\",\"signal\":\"level\",\"above\":90}")
		}
		s, err := in.settings()
		if err != nil {
			return watch.Status{}, err
		}
		return watches.Set(ctx, call, s)
	}).Undescribed()
}

// only reports whether the input names a watch, and has nothing but what is wanted.
func (in WatchInput) only(want WatchInput) bool { return in.Watch != "" && reflect.DeepEqual(in, want) }

// settings returns what is to be set.
func (in WatchInput) settings() (watch.Settings, error) {
	s := watch.Settings{
		ID: in.Watch, Name: in.Name, Condition: *in.When, Notify: in.Notify,
		Every: time.Duration(in.Every), PerHour: in.PerHour, Expires: time.Duration(in.Expires),
	}
	if s.Name == "" {
		s.Name = ferrule.OneLine(s.Condition.String(), 60)
	}
	if in.Call != nil {
		s.Call = &watch.Action{Device: in.Call.Device, Tool: in.Call.Tool}
		if len(in.Call.Args) > 0 {
			args, err := json.Marshal(in.Call.Args)
			if err != nil {
				return s, ferrule.Errorf(ferrule.Invalid, "call.args: %w", err)
			}
			s.Call.Args = args
		}
	}
	return s, nil
}
