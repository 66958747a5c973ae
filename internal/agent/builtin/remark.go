package builtin

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// LabelText returns the labels of a device in one line, or "".
func (d DescribedDevice) LabelText() string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(d.Labels)) {
		all = append(all, key+"="+d.Labels[key])
	}
	return strings.Join(all, " ")
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
