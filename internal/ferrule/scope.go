package ferrule

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Scopes is what a credential permits at most; the policy may permit less. The zero value
// does not limit: the caller has no credential, such as a program of the owner. A set that
// was parsed is never zero, so one without a scope permits nothing.
type Scopes uint8

// The scopes. Each of ScopeRead, ScopeChange, ScopeEndanger and ScopeAdmin includes those
// before it, and ScopeAdmin includes ScopeMetrics.
const (
	ScopeRead     Scopes = 1 << iota // what only reads
	ScopeChange                      // tools that change something
	ScopeEndanger                    // tools that endanger something
	ScopeMetrics                     // the metrics of the gateway
	ScopeAdmin                       // the gateway's tools for people

	scopesLimited // set in each set that limits
)

// scopeNames are the names of the scopes, in the order of their bits.
var scopeNames = []string{"read", "change", "endanger", "metrics", "admin"}

// ScopeNames returns the names of all scopes.
func ScopeNames() []string { return slices.Clone(scopeNames) }

// LimitTo returns a set that has these scopes, and those that they include.
func LimitTo(scopes Scopes) Scopes {
	if scopes&ScopeAdmin != 0 {
		scopes |= ScopeEndanger | ScopeMetrics
	}
	if scopes&ScopeEndanger != 0 {
		scopes |= ScopeChange
	}
	if scopes&ScopeChange != 0 {
		scopes |= ScopeRead
	}
	return scopes | scopesLimited
}

// ParseScopes returns the set of scopes with these names, and those that they include.
func ParseScopes(names []string) (Scopes, error) {
	var all Scopes
	for _, name := range names {
		i := slices.Index(scopeNames, name)
		if i < 0 {
			return 0, fmt.Errorf("unknown scope %q; must be one of %s", Clean(name, MaxWord), strings.Join(scopeNames, ", "))
		}
		all |= 1 << i
	}
	return LimitTo(all), nil
}

// Has reports whether all of these scopes are in the set, or it does not limit.
func (s Scopes) Has(scopes Scopes) bool { return s == 0 || s&scopes == scopes }

// Limits reports whether the set limits its caller.
func (s Scopes) Limits() bool { return s != 0 }

// And returns what both sets permit.
func (s Scopes) And(other Scopes) Scopes {
	if s == 0 || other == 0 {
		return s | other
	}
	return s & other
}

// Names returns the names of the scopes in the set.
func (s Scopes) Names() []string {
	names := []string{}
	for i, name := range scopeNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (s Scopes) String() string { return strings.Join(s.Names(), " ") }

// MarshalText implements [encoding.TextMarshaler]. A set without a scope is "none".
func (s Scopes) MarshalText() ([]byte, error) {
	if s == scopesLimited {
		return []byte("none"), nil
	}
	return []byte(s.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler]. What is unknown permits nothing.
func (s *Scopes) UnmarshalText(text []byte) (err error) {
	switch string(text) {
	case "":
		*s = 0
	case "none":
		*s = scopesLimited
	default:
		*s, err = ParseScopes(strings.Fields(string(text)))
	}
	return err
}

// Tools of the gateway that list and answer approvals. A person needs no more for them than
// for the call that waits.
const (
	listTool   = "list_approvals"
	answerTool = "answer_approval"
)

// forPersons are tools for people that no agent may call, whatever its scopes: they answer
// for a person, undo what protects one, or let somebody in. A changed device that is
// forgotten comes back as a new one, and rules of the policy are for names and labels.
var forPersons = []string{
	answerTool, "resume_devices", "accept_device", "forget_device", "label_device", "rename_device", "add_token", "rotate_token", "add_person", "set_person_role", "remove_person", "logout_person", "create_login_link",
}

// forwarders are tools of the gateway that only make other calls.
var forwarders = []string{"call_many", "call_tool"}

// Forwarders returns the names of the gateway's tools that only make other calls. Each of
// those is decided by itself.
func Forwarders() []string { return slices.Clone(forwarders) }

// ScopeFor returns the scope that an operation needs.
func ScopeFor(op Operation, tool *Tool) Scopes {
	switch {
	case op != CallTool:
		return ScopeRead
	case tool.UserOnly && (tool.Name == answerTool || tool.Name == listTool):
		return ScopeEndanger
	case tool.UserOnly:
		return ScopeAdmin
	case tool.Effect == Reads:
		return ScopeRead
	case tool.Effect == Changes:
		return ScopeChange
	}
	return ScopeEndanger
}

// Lacks returns the scope that the caller does not have and needs for an operation, or 0.
// Everybody may stop devices, and may use a tool that only makes other calls.
func (p Principal) Lacks(dev *Device, op Operation, tool *Tool) Scopes {
	need := ScopeFor(op, tool)
	if dev.ID == GatewayID && op == CallTool {
		switch {
		case tool.Name == StopTool:
			return 0
		case slices.Contains(forwarders, tool.Name):
			need = ScopeRead
		}
	}
	if p.Scopes.Has(need) {
		return 0
	}
	return need
}

// CanStepUp reports whether the caller's program can ask for more scopes by itself, because
// its token is from an authorization server. Such a caller is shown what it lacks a scope
// for.
func (p Principal) CanStepUp() bool { return p.Auth == AuthOAuth || p.Auth == AuthIssuer }

// Reaches reports whether the caller's credential is good for a device. The gateway itself
// is always reached: what its tools do to devices is checked for each of them.
func (p Principal) Reaches(dev *Device) bool {
	if p.Devices == "" || dev.ID == GatewayID {
		return true
	}
	for pattern := range strings.SplitSeq(p.Devices, ",") {
		if ok, err := path.Match(pattern, dev.ID); ok && err == nil {
			return true
		}
	}
	return false
}

// DevicePatterns returns the patterns of devices that the caller's credential is good for;
// none for all.
func (p Principal) DevicePatterns() []string {
	if p.Devices == "" {
		return []string{}
	}
	return strings.Split(p.Devices, ",")
}

// CheckDevicePatterns returns the patterns as a Principal has them. Each is the ID of a
// device, where * stands for any part of it.
func CheckDevicePatterns(patterns []string) (string, error) {
	for _, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" || strings.ContainsAny(pattern, ", ") {
			return "", fmt.Errorf("invalid device pattern %q; it is the name of a device, or part of it with a *, for example kitchen-*", Clean(pattern, MaxWord))
		}
	}
	return strings.Join(patterns, ","), nil
}
