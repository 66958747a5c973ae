package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInForce checks values, their sources, and that no secret is shown.
func TestInForce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ferrule.yaml")
	text := `listen: 127.0.0.1:4000
devices:
  mqtt:
    - url: mqtt://broker.home
      user: me
      password: hunter3
approvals:
  webhook:
    url: https://push.home/hunter4
    secret: hunter5-hunter5-hunter5
auth:
  tokens:
    - name: lab
      token: hunter6-hunter6-hunter6-hunter6
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	c.DialIn.Listen = "127.0.0.1:5000" // a flag
	found := make(map[string]Value)
	for _, v := range InForce(c, path) {
		found[v.Key] = v
		if strings.Contains(fmt.Sprint(v), "hunter") {
			t.Errorf("a secret: %v", v)
		}
	}
	for key, want := range map[string]Value{
		"listen":                    {"listen", "127.0.0.1:4000", FromFile, false},
		"dial_in.listen":            {"dial_in.listen", "127.0.0.1:5000", FromFlags, false},
		"calls.deadline":            {"calls.deadline", fmt.Sprint(c.Calls.Deadline), FromDefault, false},
		"devices.mqtt[0].password":  {"devices.mqtt[0].password", "(secret, set)", FromFile, true},
		"approvals.webhook.secret":  {"approvals.webhook.secret", "(secret, set)", FromFile, true},
		"auth.tokens[0].token":      {"auth.tokens[0].token", "(secret, set)", FromFile, true},
		"auth.tokens[0].name":       {"auth.tokens[0].name", "lab", FromFile, false},
		"policy.dir":                {"policy.dir", filepath.Join(filepath.Dir(path), Default().Policy.Dir), FromDefault, false},
		"devices.mqtt[0].home_name": {},
	} {
		if found[key] != want {
			t.Errorf("%s: got %v, want %v", key, found[key], want)
		}
	}
	if got := InForce(Default(), ""); len(got) < 50 {
		t.Errorf("%d keys", len(got))
	}
}
