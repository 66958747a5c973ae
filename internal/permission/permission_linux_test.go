package permission

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDenied: a file without permissions is denied to everybody but root.
func TestDenied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "port")
	if err := os.WriteFile(path, nil, 0); err != nil {
		t.Fatal(err)
	}
	want := NoGroup
	if os.Getuid() == 0 {
		want = ""
	}
	for name, why := range map[string]func(string) (Denied, string){"to read and write": ToReadAndWrite, "to write": ToWrite} {
		if got, group := why(path); got != want || group != "" {
			t.Errorf("%s: got %q and %q, want %q", name, got, group, want)
		}
	}
}

func TestWhyDenied(t *testing.T) {
	const dialout = 20
	for name, test := range map[string]struct {
		mode, needs    os.FileMode
		gid            int
		session, login []int
		want           Denied
	}{
		"not a member":               {0o660, 0o060, dialout, []int{1000}, []int{1000}, NotMember},
		"groups unknown":             {0o660, 0o060, dialout, nil, nil, NotMember},
		"joined after the login":     {0o660, 0o060, dialout, []int{1000}, []int{1000, dialout}, NeedsLogin},
		"a member, denied otherwise": {0o660, 0o060, dialout, []int{1000, dialout}, []int{1000, dialout}, NoGroup},
		"no group may":               {0o600, 0o060, dialout, []int{1000}, []int{1000}, NoGroup},
		"the group may only write":   {0o620, 0o060, dialout, []int{1000}, []int{1000}, NoGroup},
		"writing is enough":          {0o620, 0o020, dialout, []int{1000}, []int{1000}, NotMember},
		"root's group":               {0o660, 0o060, 0, []int{1000}, []int{1000}, NoGroup},
	} {
		if got := whyDenied(test.mode, test.needs, test.gid, test.session, test.login); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
