package catalog_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

var validName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,46}$`)

// plainNames maps the own names of a device's tools to their names with ID.
func plainNames(c *catalog.Catalog, device string) map[string]string {
	all := make(map[string]string)
	offers, _ := c.All().FindTools("", device, ferrule.MaxTools)
	for _, o := range offers {
		all[o.Tool.Name] = o.Name
	}
	return all
}

// checkNames checks the names of a set of tools: on a device, folded, and alone.
func checkNames(t *testing.T, id string, m *ferrule.Manifest) {
	t.Helper()
	c := some(40)
	c.Put(online(id, m), m)
	want := 0
	for _, tool := range m.Tools {
		if tool.Quarantine == "" && !tool.UserOnly {
			want++
		}
	}
	check := func(offers []ferrule.Offer, resolve func(o ferrule.Offer) (string, string, error)) {
		t.Helper()
		seen := make(map[string]bool)
		tools := make(map[string]bool)
		for _, o := range offers {
			if !validName.MatchString(o.Name) || seen[o.Name] || tools[o.Tool.Name] {
				t.Errorf("%q of %q: not valid, or there already", o.Name, o.Tool.Name)
			}
			seen[o.Name], tools[o.Tool.Name] = true, true
			device, tool, err := resolve(o)
			if device != id || tool != o.Tool.Name || err != nil {
				t.Errorf("%q is %q of %q, and resolves to %q of %q: %v", o.Name, o.Tool.Name, id, tool, device, err)
			}
		}
		if len(offers) != want {
			t.Errorf("%d names for %d tools", len(offers), want)
		}
	}
	plain, _ := c.All().FindTools("", id, len(m.Tools)+1)
	check(plain, func(o ferrule.Offer) (string, string, error) {
		if !strings.HasPrefix(o.Name, id+"__") {
			t.Errorf("%q is on %q", o.Name, id)
		}
		if again, err := c.All().Offer(o.Name); err != nil || again.Tool != o.Tool || again.Name != o.Name {
			t.Errorf("%q is told to be %q: %v", o.Name, again.Name, err)
		}
		device, tool, _, err := c.Resolve(o.Name, nil)
		return device, tool, err
	})
	check(c.All().Of(id), func(o ferrule.Offer) (string, string, error) { return id, c.ResolveOn(id, o.Name), nil })

	before := plainNames(c, id)
	c.Put(online("another", m), m)
	other := manifest("other", "x", "y")
	c.Put(online("third", other), other)
	if after := plainNames(c, id); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("names were %q and became %q", before, after)
	}
	folded, _ := c.All().FindTools("", "", len(m.Tools)+3)
	folded = slices.DeleteFunc(folded, func(o ferrule.Offer) bool { return o.Argument == "" })
	check(folded, func(o ferrule.Offer) (string, string, error) {
		if again, err := c.All().Offer(o.Name); err != nil || again.Tool != o.Tool || again.Name != o.Name {
			t.Errorf("%q is told to be %q: %v", o.Name, again.Name, err)
		}
		args, _ := json.Marshal(map[string]any{o.Argument: id})
		device, tool, _, err := c.Resolve(o.Name, args)
		return device, tool, err
	})
}

// bounded returns a manifest after Bound.
func bounded(model string, tools []string) *ferrule.Manifest {
	m := manifest(model, tools...)
	m.Bound()
	return m
}

// firstDigits returns the digits that a hashed name would end in.
func firstDigits(of string) string {
	sum := sha256.Sum256([]byte(of))
	return hex.EncodeToString(sum[:])
}

var longID = "a" + strings.Repeat("-b", 15) + "c" // as long as they can be

func TestNames(t *testing.T) {
	long := strings.Repeat("tool", ferrule.MaxToolName/4)
	for _, test := range []struct {
		id    string
		tools []string
	}{
		{"robot", []string{"gpio_write", "gpio_read", "set-led"}},
		{"a_b", []string{"_x", "__x", "x__y", "-", "--", "_", "__"}},
		{"robot", []string{"self.audio.volume", "self_audio_volume", "self-audio-volume", "self audio volume", "self/audio/volume"}},
		{"robot", []string{"Größe", "Gr__e", "Gr\u00f6\u00dfe!", "温度", "湿度", "🤖", "🦾", "e\u0301", "é"}},
		{longID, []string{"gpio_write", "gpio_write_all", "gpio_write_all_of_them", long, long[1:], long[:len(long)-1]}},
		{longID, numbered("a_tool_with_a_long_name_", 300)},
		{"x", []string{"call_tool", "status", "device"}},
		{"robot", nil},
	} {
		checkNames(t, test.id, bounded("A Board, of "+test.id, test.tools))
		checkNames(t, test.id, bounded(strings.Repeat("board ", 20), test.tools))
		checkNames(t, test.id, bounded("板", test.tools))
	}
	if longID := strings.Repeat("b", ferrule.MaxID); len(longID+"__")+12 != 46 {
		t.Error("the longest ID leaves no room for a tool")
	}
}

// TestNamesStayTheirOwn checks that valid names are not changed.
func TestNamesStayTheirOwn(t *testing.T) {
	c := some(40)
	m := manifest("m", "gpio_write", "a.b", "a_b", "c.d", strings.Repeat("x", 39), strings.Repeat("x", 40))
	c.Put(online("robot", m), m)
	got := plainNames(c, "robot")
	for tool, want := range map[string]string{
		"gpio_write":            "robot__gpio_write",
		"a_b":                   "robot__a_b",
		"a.b":                   "robot__a_b_" + firstDigits("a.b")[:6],
		"c.d":                   "robot__c_d",
		strings.Repeat("x", 39): "robot__" + strings.Repeat("x", 39),
		strings.Repeat("x", 40): "robot__" + strings.Repeat("x", 32) + "_" + firstDigits(strings.Repeat("x", 40))[:6],
	} {
		if got[tool] != want {
			t.Errorf("%s is %s, want %s", tool, got[tool], want)
		}
	}
}

// TestForeseenNames checks that a device cannot create collisions by predicting hashes.
func TestForeseenNames(t *testing.T) {
	const id = "robot"
	room := 46 - len(id) - 2
	long := strings.Repeat("y", 60)
	digits := firstDigits(long)
	var tools []string
	for n := 4; n < room-1; n++ {
		tools = append(tools, long[:room-n-1]+"_"+digits[:n])
		tools = append(tools, long[:room-n-1]+"."+digits[:n]) // becomes the same
	}
	for n := 1; n < 10; n++ {
		tools = append(tools, long[:room-7]+"_"+firstDigits(fmt.Sprintf("%s\n%d", long, n))[:6])
	}
	tools = append(tools, long)
	checkNames(t, id, bounded("m", tools))

	// The one that is named as another is called cannot be used by agents.
	hidden := bounded("m", []string{long, long[:room-7] + "_" + digits[:6]})
	hidden.Tools[1].UserOnly = true
	checkNames(t, id, hidden)

	// Nor can one come to the name of another's hash by a character that is replaced.
	checkNames(t, id, bounded("m", []string{"a.b", "a_b", "a.b." + firstDigits("a.b")[:6], "a_b." + firstDigits("a.b")[:6]}))
}

// TestManyNames checks names of random tools.
func TestManyNames(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	letters := []rune("ab_-._ éß温\u0301A9")
	for range 200 {
		var tools []string
		for range 1 + random.IntN(40) {
			var name []rune
			for range 1 + random.IntN(8)*random.IntN(8) {
				name = append(name, letters[random.IntN(len(letters))])
			}
			tools = append(tools, string(name))
		}
		checkNames(t, longID[:1+2*random.IntN(16)], bounded(tools[0], tools))
	}
}

func FuzzNames(f *testing.F) {
	f.Add("robot", "board", "gpio_write\ngpio.write\ngpio write")
	f.Add(longID, "a very long model of a board", strings.Repeat("tool", 32)+"\n"+strings.Repeat("tool", 31))
	f.Add("a_b", "", "_x\n__x\nx__y\n--")
	f.Add("robot", "板", "温度\n湿度\na_b\na.b\na_b_"+firstDigits("a.b")[:6])
	f.Fuzz(func(t *testing.T, id, model, tools string) {
		if ferrule.CheckID(id) != nil || id == ferrule.GatewayID || id == "another" || id == "third" {
			t.Skip()
		}
		checkNames(t, id, bounded(model, strings.Split(tools, "\n")))
	})
}

// TestFoldedPrefix checks that two Kinds of one model have different prefixes.
func TestFoldedPrefix(t *testing.T) {
	c := some(2)
	one, two := manifest("Sim Board", "look"), manifest("Sim Board", "see")
	put(c, "a", 2, one)
	put(c, "b", 2, two)
	got := names(c)
	for _, name := range []string{
		"folded:",
		fmt.Sprintf("sim-board--%s__look", online("x", one).Kind[:6]),
		fmt.Sprintf("sim-board--%s__see", online("x", two).Kind[:6]),
	} {
		if !slices.Contains(strings.Fields(got), name) {
			t.Errorf("%s is not in %s", name, got)
		}
	}
}

// TestLookAlike checks that a Kind with colliding digits cannot take another's name.
func TestLookAlike(t *testing.T) {
	one, two := manifest("board", "open", "shut"), manifest("board", "open", "burn")
	two.Tools[0].Effect = ferrule.Endangers
	kind := ferrule.Kind(strings.Repeat("abcdef", 10) + "0123")
	device := func(id string, m *ferrule.Manifest, last string) *ferrule.Device {
		dev := online(id, m)
		dev.Kind = kind[:60] + ferrule.Kind(last)
		return dev
	}
	fill := func(order ...int) *catalog.Catalog {
		c := some(4)
		for _, i := range order {
			if i < 3 {
				c.Put(device(fmt.Sprintf("one-%d", i), one, "1111"), one)
			} else {
				c.Put(device(fmt.Sprintf("two-%d", i), two, "2222"), two)
			}
		}
		return c
	}
	c := fill(0, 1, 2, 3, 4)
	got := names(c)
	if other := names(fill(4, 2, 3, 1, 0)); other != got {
		t.Errorf("in another order, %s is %s", got, other)
	}
	if !strings.HasPrefix(got, "folded:") || strings.Count(got, "board--abcdef__") != 2 || strings.Count(got, "board--") != 4 {
		t.Fatalf("got %s", got)
	}
	list, _ := c.List()
	for _, o := range list {
		if o.Argument == "" {
			continue
		}
		for _, id := range []string{"one-0", "two-3"} {
			device, tool, _, err := c.Resolve(o.Name, json.RawMessage(`{"device":"`+id+`","pin":1}`))
			mine := (o.Tool == one.Tool(o.Tool.Name)) == (id == "one-0")
			if mine && (err != nil || device != id || tool != o.Tool.Name) || !mine && (code(err) != ferrule.Invalid || device != "" || tool != "") {
				t.Errorf("%s on %s: %s %s %v", o.Name, id, device, tool, err)
			}
		}
		if again, err := c.All().Offer(o.Name); err != nil || again.Tool != o.Tool {
			t.Errorf("%s is told to be another: %v", o.Name, err)
		}
	}
}

// TestOverlayOnOne checks that a device with its own overlay is separate from its Kind.
func TestOverlayOnOne(t *testing.T) {
	shared, own := manifest("board", "open", "shut"), manifest("board", "open", "shut")
	own.Tools[0].Effect = ferrule.Endangers
	c := some(4)
	put(c, "door", 3, shared)
	before := names(c)
	gate := online("gate", shared) // its Kind is what the device says
	c.Put(gate, own)
	got := names(c)
	for _, name := range append(strings.Fields(before)[1:], "gate__open", "gate__shut") {
		if !slices.Contains(strings.Fields(got), name) {
			t.Errorf("%s is not in %s", name, got)
		}
	}
	if n := c.Counts(); n.Kinds != 1 || n.Online != 4 {
		t.Errorf("got %+v", n)
	}
	folded := "board--" + string(online("x", shared).Kind[:6]) + "__open"
	for range 20 {
		if device, _, _, err := c.Resolve(folded, json.RawMessage(`{"device":"gate"}`)); code(err) != ferrule.Invalid || device != "" {
			t.Fatalf("%s: %v", device, err)
		}
		if device, _, _, err := c.Resolve(folded, json.RawMessage(`{"device":"door-1"}`)); err != nil || device != "door-1" {
			t.Fatalf("%s: %v", device, err)
		}
	}
}
