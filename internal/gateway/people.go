package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/console"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/approval"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/guard/issuer"
	"github.com/ferrulehq/ferrule/internal/guard/people"
)

// peopleFile is the file of people in the data directory.
const peopleFile = "people"

// openPeople reads the people who may log in with a browser.
func (g *Gateway) openPeople() (err error) {
	g.People, err = people.Open(people.Parts{
		File: filepath.Join(g.parts.Data, peopleFile), Shared: g.shared(), Origin: g.origin, URL: g.loginURL,
		Issuers: g.loginIssuers, Record: g.recordAccess, Frame: console.Plain, Log: g.parts.Log,
		Changed: func(name string, elsewhere bool) int {
			defer g.Approvals.Recheck()
			if g.OAuth == nil {
				return 0
			}
			return g.OAuth.EndGrants(name, elsewhere)
		},
	})
	return err
}

// loginIssuers returns the external issuers that people can log in through.
func (g *Gateway) loginIssuers() (all []people.Issuer) {
	for _, i := range g.issuers {
		if l := i.Login(); l != nil {
			all = append(all, people.Issuer{Name: l.Name(), Login: issuerLogin{l}})
		}
	}
	return all
}

// issuerLogin implements people.Login.
type issuerLogin struct{ *issuer.Login }

// Finish implements people.Login.
func (l issuerLogin) Finish(ctx context.Context, code, redirect, nonce, verifier string) (people.Identity, error) {
	id, err := l.Login.Finish(ctx, code, redirect, nonce, verifier)
	return people.Identity(id), err
}

// loginURL returns the URL that login links begin with.
func (g *Gateway) loginURL() (string, error) {
	if g.web == nil {
		return "", ferrule.Errorf(ferrule.Invalid, "nobody can log in, because this gateway serves no HTTP").
			WithHint("set listen in ferrule.yaml, for example 127.0.0.1:3377, and restart the gateway")
	}
	if url := g.parts.Config.Auth.URL; url != "" {
		return strings.TrimSuffix(url, "/"), nil
	}
	if g.certificate != nil {
		return g.URL(), nil
	}
	at, ok := g.web.Addr().(*net.TCPAddr)
	if !ok || !at.IP.IsLoopback() && !at.IP.IsUnspecified() {
		return "", ferrule.Errorf(ferrule.Invalid, "nobody can log in at %s, because everybody on the network could read it", g.web.Addr()).
			WithHint("set tls in ferrule.yaml, or auth.url if a proxy has the certificate")
	}
	if at.IP.IsUnspecified() {
		at = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.Port}
	}
	return "http://" + at.String(), nil
}

// ConsoleLink returns a line with a link that logs the user who runs the gateway in to the
// console, or nothing unless only this machine is served. It is a secret.
func (g *Gateway) ConsoleLink(ctx context.Context) string {
	if g.web == nil {
		return ""
	}
	if at, ok := g.web.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		return ""
	}
	who := ferrule.Principal{Role: ferrule.Person, Name: identity.CurrentUser(), Auth: ferrule.AuthSocket}
	link, err := callOwn[ferrule.LoginLink](ctx, g, who, "create_login_link", builtin.LoginLinkInput{})
	if err != nil {
		g.parts.Log.Warn("there is no link to the console; run `ferrule open`", "err", err)
		return ""
	}
	return fmt.Sprintf("Open the console: %s\nThe link works once, within five minutes. Later, run `ferrule open`.\n", link.URL)
}

// approvalPages returns the pages of links to requests for approval. They use the tool that
// the commands use: the policy decides, and other nodes answer their own requests.
func (g *Gateway) approvalPages() http.Handler {
	return &approval.Pages{
		Approvals: g.Approvals, People: g.People,
		Answer: func(ctx context.Context, who ferrule.Principal, id string, answer approval.Answer) error {
			_, err := callOwn[ferrule.Approval](ctx, g, who, answerTool, builtin.AnswerApprovalInput{ID: id, Allow: answer.Allow, For: ferrule.Duration(answer.For)})
			return err
		},
		Draw: func(w http.ResponseWriter, status int, p approval.Page) error {
			return console.WriteLink(w, status, console.LinkPage(p))
		},
	}
}

// callOwn calls one of the gateway's own tools on behalf of somebody.
func callOwn[Out any](ctx context.Context, g *Gateway, who ferrule.Principal, tool string, in any) (out Out, err error) {
	args, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	result, err := g.Pipeline.Handle(ctx, &ferrule.Call{Principal: who, Device: ferrule.GatewayID, Tool: tool, Args: args})
	if err == nil {
		err = json.Unmarshal(result.Value, &out)
	}
	return out, err
}
