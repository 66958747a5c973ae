package catalog_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// house returns a catalog with a few devices.
func house() *catalog.Catalog {
	c := some(40)
	add := func(id string, m *ferrule.Manifest, labels ...string) {
		dev := online(id, m)
		for i := 0; i < len(labels); i += 2 {
			if dev.Labels == nil {
				dev.Labels = make(map[string]string)
			}
			dev.Labels[labels[i]] = labels[i+1]
		}
		c.Put(dev, m)
	}
	sensor := manifest("TempSensor mk2", "readTemperature", "set_interval")
	sensor.Platform = "esp32"
	sensor.Tools[0].Text = "Returns how warm it is, in degrees."
	add("kitchen-temp", sensor, "room", "kitchen", "floor", "ground")
	add("attic-temp", sensor, "room", "attic", "floor", "second")
	lamp := manifest("Lamp", "led_on", "led_off", "dim")
	lamp.Tools[2].Text = "Makes the light of the LED less."
	add("lamp-1", lamp, "room", "kitchen")
	fan := manifest("Fan", "turn")
	c.Put(as(online("fan_1", fan), ferrule.StateOffline, ferrule.TrustAdopted), fan)
	return c
}

// TestFindRenamed: a search finds a device by a label that was set just now, and by its
// earlier ID, until both are gone.
func TestFindRenamed(t *testing.T) {
	c := some(40)
	m := manifest("Lamp", "led_on")
	dev := online("lamp", m)
	c.Put(dev, m)
	changed := *dev
	changed.Labels, changed.Aliases = map[string]string{"room": "cellar"}, []string{"sim-board"}
	changed.Title, changed.Claims = "Reading light", map[string]string{"area": "Library"}
	c.Put(&changed, m)
	for _, query := range []string{"cellar", "room", "sim-board", "reading", "library"} {
		if found, _ := c.All().FindDevices(query, 10); len(found) != 1 {
			t.Errorf("%s: found %d", query, len(found))
		}
		if found, _ := c.All().FindTools(query, "", 10); len(found) != 1 || found[0].Name != "lamp__led_on" {
			t.Errorf("%s: found %v", query, found)
		}
	}
	if dev, _, ok := c.Lookup("sim-board"); !ok || dev.ID != "lamp" {
		t.Errorf("got %+v, %t", dev, ok)
	}
	c.Put(dev, m)
	if found, _ := c.All().FindDevices("cellar", 10); len(found) != 0 {
		t.Error("found by a label that was removed")
	}
	if _, _, ok := c.Lookup("sim-board"); ok {
		t.Error("found by an alias that was removed")
	}
}

func TestFindDevices(t *testing.T) {
	c := house()
	for _, test := range []struct {
		query string
		limit int
		want  string
		total int
	}{
		{"", 10, "attic-temp fan_1 kitchen-temp lamp-1", 4},
		{" ?!", 2, "attic-temp fan_1", 4},
		{"kitchen", 10, "kitchen-temp lamp-1", 2}, // a name counts more than a label
		{"KITCHEN", 10, "kitchen-temp lamp-1", 2},
		{"kitchen lamp", 10, "lamp-1 kitchen-temp", 2}, // more words count more
		{"temp attic", 10, "attic-temp kitchen-temp", 2},
		{"tempSensor", 10, "attic-temp kitchen-temp", 2},
		{"sensor", 10, "attic-temp kitchen-temp", 2},
		{"sens", 10, "attic-temp kitchen-temp", 2},
		{"ensor", 10, "attic-temp kitchen-temp", 2},
		{"en", 10, "", 0}, // too short to be looked for within words
		{"esp32", 1, "attic-temp", 2},
		{"mk2 second", 10, "attic-temp kitchen-temp", 2},
		{"floor", 10, "attic-temp kitchen-temp", 2},
		{"offline", 10, "fan_1", 1},
		{"fan", 10, "fan_1", 1},
		{"1", 10, "fan_1 lamp-1", 2},
		{"nothing", 10, "", 0},
		{"nothing kitchen nothing", 10, "kitchen-temp lamp-1", 2},
		{"kitchen", 0, "", 2},
		{"", 0, "", 4},
		{"kitchen", -1, "", 2},
	} {
		found, total := c.All().FindDevices(test.query, test.limit)
		var got []string
		for _, dev := range found {
			got = append(got, dev.ID)
		}
		if strings.Join(got, " ") != test.want || total != test.total {
			t.Errorf("%q: %q of %d, want %q of %d", test.query, got, total, test.want, test.total)
		}
	}
}

func TestFindTools(t *testing.T) {
	c := house()
	sensor := toolPrefix(c, "set_interval")
	for _, test := range []struct {
		query, device string
		limit         int
		want          string
		total         int
	}{
		{"", "", 10, "lamp-1__dim lamp-1__led_off lamp-1__led_on S__readTemperature S__set_interval", 5},
		{"", "kitchen-temp", 10, "kitchen-temp__readTemperature kitchen-temp__set_interval", 2},
		{"led", "", 10, "lamp-1__led_off lamp-1__led_on lamp-1__dim", 3}, // a name counts more than a text
		{"led on", "", 10, "lamp-1__led_on lamp-1__led_off lamp-1__dim", 3},
		{"led", "kitchen-temp", 10, "", 0},
		{"temperature kitchen", "", 10, "S__readTemperature lamp-1__dim lamp-1__led_off lamp-1__led_on S__set_interval", 5},
		{"warm", "", 10, "S__readTemperature", 1},
		{"read temperature", "", 1, "S__readTemperature", 1},
		{"lamp", "", 2, "lamp-1__dim lamp-1__led_off", 3},
		{"tempsensor", "", 10, "", 0}, // it is two words
		{"set interval attic", "", 1, "S__set_interval", 2},
		{"fan", "", 10, "", 0}, // it is offline
		{"", "fan_1", 10, "", 0},
		{"", "nobody", 10, "", 0},
		{"", "gateway", 10, "", 0},
		{"status", "", 10, "", 0},
		{"", "", 0, "", 5},
	} {
		found, total := c.All().FindTools(test.query, test.device, test.limit)
		var got []string
		for _, o := range found {
			got = append(got, strings.Replace(o.Name, sensor, "S", 1))
		}
		want := strings.Fields(test.want)
		if !slices.Equal(sortedIfTied(got, test.query), sortedIfTied(want, test.query)) || total != test.total {
			t.Errorf("%q %q: %q of %d, want %q of %d", test.query, test.device, got, total, want, test.total)
		}
	}
	found, _ := c.All().FindTools("warm", "", 1)
	if o := found[0]; o.Count != 2 || !slices.Equal(o.Devices, []string{"attic-temp", "kitchen-temp"}) || o.Argument != "device" {
		t.Errorf("got %+v", o)
	}
}

// sortedIfTied sorts results whose order depends on unknown digits.
func sortedIfTied(names []string, query string) []string {
	if query == "" || query == "temperature kitchen" {
		return slices.Sorted(slices.Values(names))
	}
	return names
}

// toolPrefix returns the prefix of a tool name.
func toolPrefix(c *catalog.Catalog, tool string) string {
	found, _ := c.All().FindTools(tool, "", 1)
	prefix, _, _ := strings.Cut(found[0].Name, "__")
	return prefix
}

// TestMoreWords checks that more matching words rank higher.
func TestMoreWords(t *testing.T) {
	c := some(40)
	m := manifest("x", "run")
	weak, strong := online("weak", m), online("alpha-beta-gamma-delta-eps-zet-eta", m)
	weak.Labels = map[string]string{"a": "xalphax xbetax xgammax xdeltax", "b": "xepsx xzetx xetax xthetax"}
	c.Put(weak, m)
	c.Put(strong, m)
	found, _ := c.All().FindDevices("alpha beta gamma delta eps zet eta theta", 2)
	if len(found) != 2 || found[0] != weak {
		t.Errorf("%s has one word less, and comes first", found[0].ID)
	}
	if found, _ := c.All().FindDevices("alpha alpha alpha theta xthetax xthe", 2); found[0] != weak {
		t.Error("a word counts as often as it is said")
	}
}

// TestLongQuery checks a very long query.
func TestLongQuery(t *testing.T) {
	c := house()
	if found, total := c.All().FindDevices(strings.Repeat("kitchen ", 200)+"attic", 10); len(found) != 3 || total != 3 {
		t.Errorf("%d %d", len(found), total)
	}
	if _, total := c.All().FindDevices(strings.Join(numbered("word", 5000), " "), 10); total != 0 {
		t.Errorf("%d", total)
	}
}

// TestTies checks that equal scores are sorted by name.
func TestTies(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	m := manifest("board", numbered("tool", 30)...)
	one := online("d", m)
	var want string
	for range 10 {
		c := some(40)
		for _, i := range random.Perm(300) {
			c.Put(named(one, fmt.Sprintf("d-%03d", i)), m)
		}
		devices, total := c.All().FindDevices("board", 25)
		tools, tools30 := c.All().FindTools("board tool", "d-007", 25)
		if total != 300 || tools30 != 30 || len(devices) != 25 || len(tools) != 25 {
			t.Fatalf("%d devices, %d tools", total, tools30)
		}
		var got []string
		for i := range 25 {
			got = append(got, devices[i].ID, tools[i].Name)
		}
		if !slices.IsSortedFunc(devices, func(a, b *ferrule.Device) int { return strings.Compare(a.ID, b.ID) }) {
			t.Fatalf("got %q", got)
		}
		if all := strings.Join(got, " "); want != "" && all != want {
			t.Fatalf("%s, and %s", want, all)
		} else {
			want = all
		}
	}
}

func TestCompleteAndDevices(t *testing.T) {
	c := house()
	for _, test := range []struct {
		prefix string
		limit  int
		want   string
		total  int
	}{
		{"", 10, "attic-temp fan_1 kitchen-temp lamp-1", 4},
		{"", 2, "attic-temp fan_1", 4},
		{"k", 10, "kitchen-temp", 1},
		{"lamp-1", 10, "lamp-1", 1},
		{"lamp-10", 10, "", 0},
		{"z", 10, "", 0},
		{"K", 10, "", 0},
		{"a", 0, "", 1},
	} {
		ids, total := c.All().Complete(test.prefix, test.limit)
		if strings.Join(ids, " ") != test.want || total != test.total {
			t.Errorf("%q: %q of %d", test.prefix, ids, total)
		}
	}
	for limit, want := range map[int]string{3: "attic-temp fan_1 kitchen-temp", 10: "attic-temp fan_1 kitchen-temp lamp-1"} {
		var all []string
		for _, dev := range c.All().Devices(limit) {
			all = append(all, dev.ID)
		}
		if got := strings.Join(all, " "); got != want {
			t.Errorf("%d: got %s", limit, got)
		}
	}
}
