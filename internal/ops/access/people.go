package access

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Command is a command that calls one of the gateway's own tools and shows its result.
type Command struct {
	Use, Short, Long, Example string
	Args                      int // how many there must be; -1 for one or more
	// Flag is the only flag of the command, with its default and its usage.
	Flag, Default, Usage string
	Tool                 string
	// Check returns what is wrong with the arguments and the flag; nil if nothing can be.
	Check func(args []string, flag string) error
	Input func(args []string, flag string) any
	Show  func(result json.RawMessage) (Shown, error)
}

// Shown is a result for a terminal: a table, then a text.
type Shown struct {
	Header string
	Rows   [][]string
	Text   string
}

// ShownAs returns a function that shows a result of a type.
func ShownAs[Out any](show func(Out) Shown) func(json.RawMessage) (Shown, error) { return shown(show) }

// shown does the same.
func shown[Out any](show func(Out) Shown) func(json.RawMessage) (Shown, error) {
	return func(result json.RawMessage) (Shown, error) {
		var out Out
		if err := json.Unmarshal(result, &out); err != nil {
			return Shown{}, fmt.Errorf("reading the answer of the gateway: %w", err)
		}
		return show(out), nil
	}
}

// Login is the command `ferrule login`.
var Login = Command{
	Use: "login", Short: "Print a link that logs you in with a browser",
	Long: `Print a link that logs in one browser, once, within five minutes. You are then an owner,
as everybody is who can run this command.

With --as, the link is for somebody you added with "ferrule people add". Give it to that
person only: it is a secret, and there is no password.`,
	Example: "  ferrule login\n  ferrule login --as anna",
	Flag:    "as", Usage: "`NAME` of the person who logs in (default you)",
	Tool:  "create_login_link",
	Input: func(_ []string, name string) any { return builtin.LoginLinkInput{Name: name} },
	Show: shown(func(l ferrule.LoginLink) Shown {
		return Shown{Text: fmt.Sprintf("%s\n\nOpen this link in a browser before %s, to log in as %s (%s). It works once.\n", l.URL, ferrule.FormatTime(l.Expires), l.Name, l.Role)}
	}),
}

// PeopleLong is the help of `ferrule people`.
const PeopleLong = `Manage the people who log in with a browser, to approve calls and to let agents in.

A viewer sees devices and what they measure. An operator also calls tools and approves
calls of agents. An owner may do everything. Each role is also a group for the policy.
People who can run this command are owners, and are not in the list.`

// PeopleCommands are the commands below `ferrule people`.
var PeopleCommands = []Command{
	{
		Use: "add NAME", Short: "Let a person log in", Example: "  ferrule people add anna --role operator\n  ferrule login --as anna",
		Long: `Let a person log in with a browser. There is no password: make a link for that person with
"ferrule login --as NAME".`,
		Args: 1, Flag: "role", Default: string(ferrule.RoleViewer), Usage: "`ROLE` of the person: viewer, operator or owner",
		Tool: "add_person", Input: func(args []string, role string) any { return builtin.PersonRoleInput{Name: args[0], Role: role} },
		Show: person("%s may log in as %s. To make a link, run: ferrule login --as %[1]s"),
	},
	{
		Use: "list", Short: "List people, and who is logged in", Example: "  ferrule people list\n  ferrule people list --json",
		Long: `List the people who may log in, and others who are logged in, for example through an
external issuer. Last logins and sessions are those of this node.`,
		Tool: "list_people", Input: func([]string, string) any { return builtin.ListPeopleInput{} },
		Show: shown(listed),
	},
	{
		Use: "role NAME ROLE", Short: "Give a person another role", Example: "  ferrule people role anna viewer",
		Long: `Give a person another role: viewer, operator or owner. The person is logged out, on all
nodes, and has to log in again.`,
		Args: 2, Tool: "set_person_role", Input: func(args []string, _ string) any { return builtin.PersonRoleInput{Name: args[0], Role: args[1]} },
		Show: person("%s is now %s, and has to log in again."),
	},
	{
		Use: "remove NAME", Short: "Remove a person", Example: "  ferrule people remove anna",
		Long: `Remove a person. All sessions of that name end within a second, on all nodes that can be
reached, and links that were not used cannot be used any longer.`,
		Args: 1, Tool: "remove_person", Input: func(args []string, _ string) any { return builtin.PersonInput{Name: args[0]} },
		Show: person("%s is removed and logged out."),
	},
	{
		Use: "logout NAME", Short: "End all sessions of a person", Example: "  ferrule people logout anna",
		Long: `End all sessions of a person, on all nodes. The person may log in again. NAME is as in the
list; it can also be a user of this machine.`,
		Args: 1, Tool: "logout_person", Input: func(args []string, _ string) any { return builtin.PersonInput{Name: args[0]} },
		Show: person("%s is logged out."),
	},
}

// person shows a change. The text has a place for the name, and may have one for the role.
func person(text string) func(json.RawMessage) (Shown, error) {
	return shown(func(p ferrule.KnownPerson) Shown {
		values := []any{p.Name, p.Role}
		if strings.Count(text, "%") == 1 {
			values = values[:1]
		}
		out := fmt.Sprintf(text, values...) + "\n"
		if p.Note != "" {
			out += p.Note + "\n"
		}
		return Shown{Text: out}
	})
}

func listed(out builtin.ListPeopleOutput) Shown {
	if len(out.People) == 0 {
		return Shown{Text: "Only users of this machine may log in. To add somebody, run: ferrule people add NAME --role operator\n"}
	}
	shown := Shown{Header: "NAME ROLE SESSIONS LAST-LOGIN"}
	for _, p := range out.People {
		last := "never"
		if !p.LastLogin.IsZero() {
			last = ferrule.FormatTime(p.LastLogin)
		}
		shown.Rows = append(shown.Rows, []string{ferrule.Clean(p.Name, ferrule.MaxWord), string(p.Role), fmt.Sprint(p.Sessions), last})
	}
	return shown
}
