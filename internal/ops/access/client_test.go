package access

import (
	"errors"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ops/setup"
)

// TestPlanHTTP: a token is written only for the gateway that makes it.
func TestPlanHTTP(t *testing.T) {
	gone := errors.New("no gateway is running")
	const own = "http://127.0.0.1:4000/mcp"
	for _, c := range []struct {
		given, own string
		shared     bool
		err        error
		url, text  string // the text is why there is no token, or the error
	}{
		{given: setup.RunningURL, own: own, url: own},
		{given: setup.RunningURL, own: "https://192.168.1.5:3377/mcp", url: "https://192.168.1.5:3377/mcp"},
		{given: setup.RunningURL, text: "serves no HTTP"},
		{given: setup.RunningURL, err: gone, text: gone.Error()},
		{given: setup.RunningURL, own: own, shared: true, url: own, text: "shared with others"},
		{given: setup.RunningURL, err: gone, shared: true, url: setup.URL, text: "shared with others"},
		{given: own, own: own, url: own},
		{given: "http://LOCALHOST:4000/mcp/devices/robot", own: own, url: "http://LOCALHOST:4000/mcp/devices/robot"},
		{given: "http://127.0.0.1/mcp", own: "http://localhost:80/mcp", url: "http://127.0.0.1/mcp"},
		{given: "http://127.0.0.1:3377/mcp", own: own, url: "http://127.0.0.1:3377/mcp", text: "is at " + own + ", not there"},
		{given: "https://127.0.0.1:4000/mcp", own: own, url: "https://127.0.0.1:4000/mcp", text: "not there"},
		{given: "http://127.0.0.2:4000/mcp", own: own, url: "http://127.0.0.2:4000/mcp", text: "not there"},
		{given: "http://127.0.0.1:3377/mcp", text: "serves no HTTP"},
		{given: "http://127.0.0.1:3377/mcp", err: gone, text: gone.Error()},
		{given: "https://gateway.example/mcp", own: own, url: "https://gateway.example/mcp", text: "on another machine"},
		{given: "https://gateway.example/mcp", err: gone, url: "https://gateway.example/mcp", text: "on another machine"},
	} {
		p, err := PlanHTTP(c.given, c.shared, builtin.ListTokensOutput{URL: c.own}, c.err)
		text := p.Without
		if err != nil {
			text, p.URL = err.Error(), ""
		}
		if p.URL != c.url || !strings.Contains(text, c.text) || p.Token != (c.text == "") {
			t.Errorf("%+v: got %+v, %v", c, p, err)
		}
	}
}
