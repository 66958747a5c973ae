package ferrule

import (
	"fmt"
	"maps"
	"slices"
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

// BoundNames removes labels, claims and aliases that are not valid or too many from a
// record that somebody else wrote.
func (d *Device) BoundNames() {
	d.Labels, d.Claims = boundLabels(d.Labels), boundLabels(d.Claims)
	d.Title = plainLine(d.Title)
	var aliases []string
	for _, alias := range d.Aliases {
		if len(aliases) < MaxAliases && CheckID(alias) == nil && alias != GatewayID {
			aliases = append(aliases, alias)
		}
	}
	d.Aliases = aliases
}

// boundLabels removes labels that are not valid, and any if there are too many.
func boundLabels(labels map[string]string) map[string]string {
	for key, value := range labels {
		if len(labels) > MaxLabels || CheckLabel(key, value) != nil {
			delete(labels, key)
		}
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

// maxClaims is the number of labels that a device may give itself: thousands do.
const maxClaims = 4

// SetClaims sets what a device says about itself: a title, and labels in any form. Values
// are cleaned. Labels that are still not valid are left out.
func (d *Device) SetClaims(title string, labels map[string]string) {
	d.Title, d.Claims = plainLine(title), nil
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value := plainLine(labels[key])
		if CheckLabel(key, value) != nil || len(d.Claims) == maxClaims {
			continue
		}
		if d.Claims == nil {
			d.Claims = make(map[string]string, 1)
		}
		d.Claims[key] = value
	}
}

// plainLine returns a text as the value of a label: clean, in one line, not too long.
func plainLine(text string) string {
	text = strings.Join(strings.Fields(Clean(text, 4*MaxLabelValue)), " ")
	return strings.TrimSpace(Clean(text, MaxLabelValue))
}
