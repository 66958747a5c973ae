package ferrule

import (
	"strings"
	"testing"
)

// FuzzBoundNames: whatever another node writes, labels and aliases are few, short and valid.
func FuzzBoundNames(f *testing.F) {
	f.Add("room=kitchen,floor=1", "robot,arm")
	f.Add("Room=x,a b=y,room=\u202e,=,k", "a__b,gateway,,"+strings.Repeat("x,", 20))
	f.Fuzz(func(t *testing.T, labels, aliases string) {
		dev := &Device{Labels: make(map[string]string), Aliases: strings.Split(aliases, ",")}
		for _, pair := range strings.Split(labels, ",") {
			key, value, _ := strings.Cut(pair, "=")
			dev.Labels[key] = value
		}
		dev.BoundNames()
		if len(dev.Labels) > MaxLabels || len(dev.Aliases) > MaxAliases {
			t.Errorf("%d labels, %d aliases", len(dev.Labels), len(dev.Aliases))
		}
		for key, value := range dev.Labels {
			if CheckLabel(key, value) != nil || len(key) > MaxLabelKey || len(value) > MaxLabelValue {
				t.Errorf("label %q=%q", key, value)
			}
		}
		for _, alias := range dev.Aliases {
			if CheckID(alias) != nil || alias == GatewayID {
				t.Errorf("alias %q", alias)
			}
		}
	})
}

// FuzzSetClaims: whatever a device says about itself, its title and claims are few, short
// and valid.
func FuzzSetClaims(f *testing.F) {
	f.Add("Desk lamp", "area", "Kitchen")
	f.Add("a\n\u202eb\x00", "area", strings.Repeat("ä", 100))
	f.Add(strings.Repeat("\u2028", 300), "Area", "\xff")
	f.Fuzz(func(t *testing.T, title, key, value string) {
		dev := &Device{}
		dev.SetClaims(title, map[string]string{key: value, "a": value, "b": value, "c": value, "d": value, "e": value})
		if len(dev.Claims) > maxClaims || len(dev.Title) > MaxLabelValue || strings.ContainsAny(dev.Title, "\t\n") {
			t.Errorf("title %q, claims %q", dev.Title, dev.Claims)
		}
		for key, value := range dev.Claims {
			if err := CheckLabel(key, value); err != nil {
				t.Error(err)
			}
		}
	})
}
