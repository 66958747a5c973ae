// Package access has the texts of the commands that say who is let in: tables and help.
package access

import (
	"fmt"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TokenColumns are the columns of TokenRows.
const TokenColumns = "TOKEN LOGIN SCOPES DEVICES EXPIRES USED FROM"

// TokenRows returns the tokens as rows of a table.
func TokenRows(all []ferrule.Token) (rows [][]string) {
	for _, t := range all {
		devices, expires, used := strings.Join(t.Devices, ","), "never", "never"
		if devices == "" {
			devices = "all"
		}
		switch {
		case t.Expired:
			expires = "expired"
		case !t.Expires.IsZero():
			expires = t.Expires.Local().Format(time.DateOnly)
		}
		if !t.Used.IsZero() {
			used = ferrule.FormatTime(t.Used)
		}
		if t.Config {
			expires, used = "in the config", ""
		}
		login := "-"
		if t.Login != nil { // its agent is named after the person and the program
			login = strings.TrimPrefix(t.Login.Agent, "agent:oauth:")
		}
		rows = append(rows, []string{t.Name, login, strings.Join(t.Scopes, ","), devices, expires, used, t.From})
	}
	return rows
}

// NewToken says what a person does with a new secret.
func NewToken(out builtin.TokenOutput) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nThis is the token of %s. Copy it now: it is not stored and cannot be shown again.\n", out.Secret, out.Token.Name)
	switch {
	case out.URL != "":
		fmt.Fprintf(&b, "The agent sends it to %s as the header `Authorization: Bearer TOKEN`.\n", out.URL)
	default:
		b.WriteString("The agent sends it as the header `Authorization: Bearer TOKEN`. This gateway does not serve HTTP now.\n")
	}
	permits := strings.Join(out.Token.Scopes, ", ")
	if len(out.Token.Devices) > 0 {
		permits += ", for " + strings.Join(out.Token.Devices, ", ")
	}
	fmt.Fprintf(&b, "It permits: %s.", permits)
	if !out.Token.Expires.IsZero() {
		fmt.Fprintf(&b, " It expires on %s.", out.Token.Expires.Local().Format(time.DateOnly))
	}
	if !out.Token.Overlap.IsZero() {
		fmt.Fprintf(&b, "\nThe old token works until %s.", ferrule.FormatTime(out.Token.Overlap))
	}
	return b.String() + "\n" + note(out)
}

// RevokedToken says what a person has to know after a token was revoked.
func RevokedToken(out builtin.TokenOutput) string {
	return fmt.Sprintf("%s is revoked: its calls are refused, and its open streams have ended.\n%s", out.Token.Name, note(out))
}

func note(out builtin.TokenOutput) string {
	if out.Note == "" {
		return ""
	}
	return out.Note + "\n"
}

// Help texts of `ferrule token`.
const (
	AddTokenHelp = `Make a token that lets an agent in over HTTP, and print its secret once. Only its hash is
stored. The name is that of the agent in the journal and in the policy.

A token permits what its scopes say, and the policy may permit less. Scopes: read for what
only reads, change for tools that change something, endanger for tools that can do harm,
metrics for /metrics, admin for some of what people do, such as adopting devices. Each of
the first three includes those before it. "ferrule setup CLIENT --http" makes a token for
an agent program, and writes it into its configuration.`
	ListTokensHelp = `List the tokens, what each permits, until when, and when and from where it was last used.
Secrets are not stored, so they cannot be listed. Logins that people gave to agents are
listed too: their names begin with grant-, and LOGIN is the person and the program. When a
login was used is what this node knows.`
	RotateTokenHelp = `Give a token another secret, and print it once. The old secret works for the overlap, so
that no call is lost until the agent has the new one. A token that expires is good for as
long again.`
	RevokeTokenHelp = `End a token at once, on all nodes: its calls are refused and its open streams end. A call
that is under way goes on, because its caller must learn the outcome. NAME can also be a
login that a person gave to an agent, such as grant-abcdefghij; the agent must log in again.`
)

// NoToken says why `ferrule setup` wrote no token.
func NoToken(project bool) string {
	if project {
		return projectToken
	}
	return remoteToken
}

const projectToken = "No token was written, because a project's file is shared with others. Each user adds their own; to make one, run `ferrule token add NAME`."

const remoteToken = "No token was written, because the gateway may be on another machine. Run `ferrule token add NAME` there, and add the header `Authorization: Bearer TOKEN` to the entry."
