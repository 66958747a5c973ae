package transcript

import (
	"bufio"
	"net"
	"slices"
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, text string
		want          bool
	}{
		{"a", "a", true},
		{"a", "ab", false},
		{"", "", true},
		{"a…b", "ab", true},
		{"a…b", "axxb", true},
		{"a…b", "a", false},
		{"ab…ba", "aba", false},
		{"…", "anything", true},
		{"a…c…e", "abcde", true},
		{"a…c…e", "acbde", true},
		{"a…c…e", "abde", false},
		{"a…c…e", "aec", false},
	} {
		if got := Match(test.pattern, test.text); got != test.want {
			t.Errorf("Match(%q, %q) is %t", test.pattern, test.text, got)
		}
	}
}

const page = "# Page\n\n```mcpu thing uno\n>> pa\n> rt\n> two\n# warm\n< one \n    three…\n```\n\n```sh\n> no\n```\n"

func TestParse(t *testing.T) {
	all, err := parse(page, "mcpu")
	if err != nil || len(all) != 1 || all[0].Line != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	if got, want := all[0].Steps, []Step{{">>", "pa"}, {">", "rt"}, {">", "two"}, {"#", "warm"}, {"<", "one three…"}}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(For(all, "uno")) != 1 || len(For(all, "sim")) != 0 {
		t.Errorf("targets %q", all[0].Targets)
	}
	for _, wrong := range []string{"```mcpu thing\nno\n```", "```mcpu\n> a\n```", "```mcpu thing\n> a\n", "```mcpu thing\n    a\n```"} {
		if all, err := parse(wrong, "mcpu"); err == nil {
			t.Errorf("%q: %+v", wrong, all)
		}
	}
}

// failing is a test that fails without ending this one.
type failing struct {
	testing.TB
	why string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.why = format
	panic(f)
}

// TestRun checks that a device that says what the page says passes, and that one that differs,
// or says more, does not.
func TestRun(t *testing.T) {
	all, err := parse(page, "mcpu")
	if err != nil {
		t.Fatal(err)
	}
	for says, passes := range map[string]bool{
		"one three and four\r\n":  true,
		"one three\n":             true,
		"two three\n":             false,
		"one three\nand more\n":   false,
		"one threeone three\nx\n": false,
	} {
		near, far := net.Pipe()
		var heard []string
		go func() {
			defer far.Close()
			in := bufio.NewReader(far)
			for range 2 {
				line, _ := in.ReadString('\n')
				heard = append(heard, strings.TrimSpace(line))
			}
			far.Write([]byte(says))
			in.ReadString('\n')
			far.Write([]byte("here\n"))
		}()
		test := &failing{TB: t}
		func() {
			defer func() {
				if r := recover(); r != nil && r != any(test) {
					panic(r)
				}
			}()
			all[0].Run(test, near, func(string) {}, "where", "here")
		}()
		near.Close()
		if (test.why == "") != passes {
			t.Errorf("%q: %q", says, test.why)
		}
		if passes && !slices.Equal(heard, []string{"part", "two"}) {
			t.Errorf("the device got %q", heard)
		}
	}
}
