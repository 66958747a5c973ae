package policy

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestChangedKind: a device that says something else than its owner accepted stays in the
// scope of the rules for what was accepted. Rules for what it offers forbid, and do not
// permit.
func TestChangedKind(t *testing.T) {
	devices := map[string]struct {
		kind, accepted, offered, partOf ferrule.Kind
	}{
		"a new tool":        {"k1", "k1", "k2", ""},
		"a changed tool":    {"part", "k1", "k2", "k1"},
		"a stricter effect": {"stricter", "stricter", "k2", "k1"},
		"both":              {"part", "stricter", "k2", "k1"},
	}
	for rule, want := range map[string]ferrule.Ruling{
		`forbid (principal, action, resource in Kind::"k1");`:                             ferrule.Forbid,
		`forbid (principal, action, resource in Kind::"k2");`:                             ferrule.Forbid,
		`forbid (principal, action, resource in Kind::"k2") unless { context.approved };`: ferrule.Ask,
		`forbid (principal, action, resource) when { resource.device in Kind::"k1" };`:    ferrule.Forbid,
		`forbid (principal, action, resource) when { resource.device.kind == "k1" };`:     ferrule.Forbid,
		`forbid (principal, action, resource in Kind::"k3");`:                             ferrule.Permit,
		`forbid (principal, action, resource) unless { resource in Kind::"k1" };`:         ferrule.Permit,
		`forbid (principal, action, resource) unless { resource in Kind::"k2" };`:         ferrule.Forbid,
	} {
		p := mustLoad(t, Config{Preset: Open}, "a.cedar", rule)
		for name, is := range devices {
			c := call("claude", "lamp", "set", ferrule.Changes, "")
			dev := c.Target.Device
			dev.Kind, dev.Accepted, dev.Offered, dev.Waiting = is.kind, is.accepted, is.offered, 1
			c.Target.Manifest = &ferrule.Manifest{PartOf: is.partOf}
			if got := p.Decide(c); got.Ruling != want {
				t.Errorf("%s, %s: got %+v, want %s", rule, name, got, want)
			}
			if shows := p.Shows(c.Principal, dev, c.Operation, c.Target.Tool); is.accepted == "k1" && shows != (want != ferrule.Forbid) {
				t.Errorf("%s, %s: shown: %v", rule, name, shows)
			}
		}
	}
	for kind, want := range map[string]ferrule.Ruling{"k1": ferrule.Permit, "k2": ferrule.Forbid} {
		p := mustLoad(t, Config{Preset: ReadOnly}, "a.cedar", `permit (principal, action, resource in Kind::"`+kind+`");`)
		for name, is := range devices {
			c := call("claude", "lamp", "set", ferrule.Changes, "")
			dev := c.Target.Device
			dev.Kind, dev.Accepted, dev.Offered, dev.Waiting = is.kind, is.accepted, is.offered, 1
			c.Target.Manifest = &ferrule.Manifest{PartOf: is.partOf}
			if got := p.Decide(c); got.Ruling != want {
				t.Errorf("permit %s, %s: got %+v, want %s", kind, name, got, want)
			}
		}
	}
}
