package overlay_test

import (
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestClasses checks which patterns match a class, and which one wins.
func TestClasses(t *testing.T) {
	builtin := `{"match":{"protocol":"hass"},"classes":{"*.*.open":{"effect":"reads","deadline":"1s"},"cover.*.open":{"effect":"changes","idempotent":true},"cover.garage.open":{"effect":"endangers"},"cover.open":{"text":"T"}},"tools":{"gate":{"deadline":"9s"}}}`
	for _, test := range []struct{ name, class, more, want string }{
		{"door", "cover.garage.open", "", "endangers true 1s "},
		{"blind", "cover.blind.open", "", "changes true 1s "},
		{"box", "valve.water.open", "", "reads false 1s "},
		{"plain", "cover.open", "", "changes false 0s T"},
		{"deep", "cover.garage.big.open", "", "changes false 0s "},
		{"short", "cover", "", "changes false 0s "},
		{"none", "", "", "changes false 0s "},
		{"gate", "cover.garage.open", "", "endangers true 9s "},
		{"gate", "cover.garage.open", `{"classes":{"cover.*.open":{"effect":"changes"}}}`, "changes true 9s "},
		{"door", "cover.garage.open", `{"match":{"device":"other"},"classes":{"cover.*.open":{"effect":"changes"}}}`, "endangers true 1s "},
		{"door", "cover.garage.open", `{"match":{"device":"d1"},"classes":{"*.garage.*":{"effect":"changes","idempotent":false}}}`, "changes false 1s "},
	} {
		files := []*overlay.File{parse(t, builtin)}
		if test.more != "" {
			files = append(files, parse(t, test.more))
		}
		m := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: test.name, Class: test.class}}}
		set := overlay.NewSet(files...)
		got := set.Apply("hass", "0123456789abcdef", "d1", m).Tools[0]
		if have := strings.Join([]string{string(got.Effect), map[bool]string{true: "true", false: "false"}[got.Idempotent], got.Deadline.String(), got.Text}, " "); have != test.want {
			t.Errorf("%s of class %q with %s: got %s, want %s", test.name, test.class, test.more, have, test.want)
		}
		if notes := set.UnknownTools("hass", "0123456789abcdef", "d1", m); len(notes) > 0 {
			t.Errorf("got notes %q", notes)
		}
	}
}

func TestParseInvalidClasses(t *testing.T) {
	for text, want := range map[string]string{
		`{"classes":{"":{}}}`:                         "classes: must be parts of",
		`{"classes":{"cover.**":{}}}`:                 "classes: must be parts of",
		`{"classes":{"cover..open":{}}}`:              "classes: must be parts of",
		`{"classes":{"Cover.open":{}}}`:               "classes: must be parts of",
		`{"classes":{"cover.o*":{}}}`:                 "classes: must be parts of",
		`{"classes":{"cover.open":{"effect":"bad"}}}`: "classes.cover.open.effect: must be reads",
		`{"classes":{"cover.open":{"efect":"x"}}}`:    `unknown field "efect"`,
	} {
		if _, err := overlay.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
