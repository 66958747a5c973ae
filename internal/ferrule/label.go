package ferrule

import (
	"fmt"
	"strings"
)

// The limits of labels and aliases of a device.
const (
	MaxLabels     = 16
	MaxLabelKey   = 32
	MaxLabelValue = 64
	MaxAliases    = 8
)

// CheckLabel returns an error if a label is not valid. A key is lower-case letters and
// digits with single . - or _ between them; a value is one line of text.
func CheckLabel(key, value string) error {
	switch {
	case len(key) > MaxLabelKey:
		return fmt.Errorf("label %q has %d characters; limit is %d", Clean(key, MaxWord), len(key), MaxLabelKey)
	case !validID(strings.ReplaceAll(key, ".", "-")) || strings.ToLower(key) != key:
		return fmt.Errorf("label %q must be lower-case letters and digits, with single . - or _ between them", Clean(key, MaxWord))
	case value == "":
		return fmt.Errorf("label %s must have a value", key)
	case len(value) > MaxLabelValue:
		return fmt.Errorf("the value of label %s has %d characters; limit is %d", key, len(value), MaxLabelValue)
	case Clean(value, MaxLabelValue) != value || strings.ContainsAny(value, "\t\n"):
		return fmt.Errorf("the value of label %s must be plain text in one line", key)
	}
	return nil
}

// BoundNames removes labels and aliases that are not valid or too many from a record
// that somebody else wrote.
func (d *Device) BoundNames() {
	for key, value := range d.Labels {
		if len(d.Labels) > MaxLabels || CheckLabel(key, value) != nil {
			delete(d.Labels, key)
		}
	}
	if len(d.Labels) == 0 {
		d.Labels = nil
	}
	var aliases []string
	for _, alias := range d.Aliases {
		if len(aliases) < MaxAliases && CheckID(alias) == nil && alias != GatewayID {
			aliases = append(aliases, alias)
		}
	}
	d.Aliases = aliases
}
