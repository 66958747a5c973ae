package access

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/setup"
)

// Plan is how an agent program connects to a gateway over HTTP.
type Plan struct {
	URL string
	// Token reports whether it gets a token, and Without says why it does not.
	Token   bool
	Without string
}

// PlanHTTP returns how an agent program connects: at a URL that its user has given, or at
// that of the gateway. It gets a token only for the gateway that makes it: another program
// at the URL could use the token. A shared entry gets none. The last two are the gateway's
// answer to list_tokens.
func PlanHTTP(given string, shared bool, known builtin.ListTokensOutput, err error) (Plan, error) {
	p := Plan{URL: given}
	own, any, here := known.URL, given == setup.RunningURL, setup.IsLocal(given)
	switch {
	case any && shared && (err != nil || own == ""):
		p.URL = setup.URL
	case err != nil && (any || here && !shared):
		return p, err
	case own == "" && (any || here && !shared):
		return p, ferrule.Errorf(ferrule.Invalid, "the gateway serves no HTTP, so an agent program cannot connect to it at a URL; nothing was changed").
			WithHint("start it with `ferrule up`, or set listen in ferrule.yaml. Or leave out --http: the agent program then starts `ferrule mcp`")
	case any:
		p.URL = own
	}
	switch {
	case shared:
		p.Without = projectToken
	case sameOrigin(p.URL, own):
		p.Token = true
	case here:
		p.Without = fmt.Sprintf(otherToken, own)
	default:
		p.Without = remoteToken
	}
	return p, nil
}

// sameOrigin reports whether two URLs have the same scheme, host and port.
func sameOrigin(a, b string) bool {
	first, err := origin(a)
	second, failed := origin(b)
	return err == nil && failed == nil && first == second
}

func origin(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("%q is not a URL with a host", address)
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(host, port), nil
}

const projectToken = "No token was written, because a project's file is shared with others. Each user adds their own; to make one, run `ferrule token add NAME`."

const remoteToken = "No token was written, because the gateway may be on another machine. Run `ferrule token add NAME` there, and add the header `Authorization: Bearer TOKEN` to the entry."

const otherToken = "No token was written, because the gateway that would make it is at %s, not there. Leave out the URL to use that gateway, or name the data directory of the other one with --data."

// ClientToken says which token `ferrule setup` made or replaced.
func ClientToken(out builtin.TokenOutput, replaced bool) string {
	text := fmt.Sprintf("Made the token %s", out.Token.Name)
	if replaced {
		text = fmt.Sprintf("Replaced the token %s", out.Token.Name)
	}
	text += ". " + permits(out.Token)
	if !out.Token.Overlap.IsZero() {
		text += " The old one works until " + ferrule.FormatTime(out.Token.Overlap) + "."
	}
	return text + "\n" + note(out)
}

// TokenLeft says what is left of a token whose entry was removed.
func TokenLeft(name string) string {
	return fmt.Sprintf("Its token is still valid. To end it, run: ferrule token revoke %s\n", name)
}
