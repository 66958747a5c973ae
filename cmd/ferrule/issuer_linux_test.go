package main

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/sim"
)

// TestIssuerOfCompany: a gateway starts while its issuer is down, and then nobody can tell
// whether a token is good. Rules use the groups that the owner mapped. Another issuer needs a
// restart.
func TestIssuerOfCompany(t *testing.T) {
	const down = "https://127.0.0.1:1"
	fleet := startSim(t, sim.Config{Count: 1})
	settings := "listen: 127.0.0.1:0\npolicy: {preset: read-only}\ndevices: {tcp: [{address: '" + fleet.Addrs()[0] + "', name: robot}]}\n" +
		"auth:\n  tokens: [{name: other, token: 0123456789abcdef}]\n  issuers: [{name: company, url: '" + down + "', groups_claim: groups, groups: {Lab 3: lab}}]\n"
	r := newReloadable(t, settings)
	r.write("policies/lab.cedar", "permit (principal in Group::\"lab\", action, resource in Device::\"robot\");\n")
	r.write("policies/lab.test.yaml", "- {who: 'company:maria', groups: [lab], device: robot, tool: gpio_write, expect: permit}\n- {who: 'company:maria', device: robot, tool: gpio_write, expect: forbid}\n")
	r.start()
	r.until("robot", ferrule.StateOnline)

	encode := base64.RawURLEncoding.EncodeToString
	token := encode([]byte(`{"alg":"RS256","kid":"one"}`)) + "." + encode([]byte(`{"iss":"`+down+`","sub":"maria"}`)) + "." + encode([]byte("signature"))
	for token, want := range map[string]int{
		token:                                http.StatusInternalServerError, // at least
		strings.Replace(token, ".", ".x", 1): http.StatusUnauthorized,
		strings.Repeat("0", 40):              http.StatusUnauthorized,
		"e30." + encode([]byte(`{"iss":"https://x"}`)) + ".": http.StatusUnauthorized,
	} {
		agent := &plainAgent{url: r.url, client: withToken(token), mcpVersion: modern}
		var status errStatus
		if _, err := agent.call(t.Context(), "robot__gpio_read", `{"pin":2}`); !errors.As(err, &status) || int(status)/100 != want/100 {
			t.Errorf("%s: got %v", token, err)
		}
	}

	r.want(0, "forbid: the preset read-only permits only what reads", "policy", "explain", "company:maria", "robot", "gpio_write", "pin=2", "value=true")
	r.want(0, "permit: the rule lab.cedar:1 permits it", "policy", "explain", "company:maria", "--group", "lab", "robot", "gpio_write", "pin=2", "value=true")
	r.want(0, "Nothing has changed.", "reload")
	r.write("ferrule.yaml", strings.Replace(settings, "Lab 3: lab", "Lab 3: lab, Lab 4: lab", 1))
	r.want(0, "Needs a restart:\n  auth.issuers\n", "reload")
	r.write("ferrule.yaml", strings.Replace(settings, "{Lab 3: lab}", "{}", 1))
	r.want(exitNotRun, `lab.cedar:1: group "lab" is not in policy.groups of ferrule.yaml, and no issuer in auth.issuers gives it to anybody`, "reload")
}
