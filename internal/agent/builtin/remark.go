package builtin

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// LabelText returns the labels of a device in one line, or "". Claims are in parentheses,
// unless the owner gave the device such a label.
func (d DescribedDevice) LabelText() string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(d.Labels)) {
		all = append(all, key+"="+d.Labels[key])
	}
	for _, key := range slices.Sorted(maps.Keys(d.Claims)) {
		if _, ok := d.Labels[key]; !ok {
			all = append(all, "("+key+"="+d.Claims[key]+")")
		}
	}
	return strings.Join(all, " ")
}

// OtherTitle returns what the device calls itself, if that is not its ID.
func (d DescribedDevice) OtherTitle() string {
	if ferrule.Slug(d.Title) == d.ID {
		return ""
	}
	return d.Title
}

// Remark returns what a person should know about a device in a list, or "".
func (d DescribedDevice) Remark() string {
	switch {
	case d.Stopped != "":
		return d.Stopped
	case d.State == string(ferrule.StateOffline) && d.Kind == "":
		return "not reached yet: " + d.Reason
	case d.State == string(ferrule.StateReleased):
		return d.Reason
	case d.State == string(ferrule.StateOffline):
		return "since " + d.Since.Local().Format(time.DateTime) + ": " + d.Reason
	case d.Trust == string(ferrule.TrustPending) && len(d.Notes) > 0:
		return d.Notes[0] + "; run `ferrule adopt " + d.ID + "` to use it"
	case d.Trust == string(ferrule.TrustPending):
		return "run `ferrule adopt " + d.ID + "` to use it"
	case len(d.Notes) > 0:
		return d.Notes[0]
	case d.Changed != nil && time.Since(*d.Changed) < 24*time.Hour:
		return "changed its Kind at " + d.Changed.Local().Format(time.TimeOnly)
	}
	return ""
}
