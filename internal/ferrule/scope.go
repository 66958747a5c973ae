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

// listTool is the gateway's tool that lists what waits for approval.
const listTool = "list_approvals"

// ScopeFor returns the scope that an operation needs.
func ScopeFor(op Operation, tool *Tool) Scopes {
	switch {
	case op == CallTool && tool.UserOnly && tool.Name == listTool: // to answer, one must see
		return ScopeEndanger
	case op != CallTool:
		return ScopeRead
	case tool.UserOnly:
		return ScopeAdmin
	case tool.Effect == Reads:
		return ScopeRead
	case tool.Effect == Changes:
		return ScopeChange
	}
	return ScopeEndanger
}

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
