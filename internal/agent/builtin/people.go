package builtin

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// People are those who may log in with a browser.
type People interface {
	List() []ferrule.KnownPerson
	Add(by ferrule.Principal, name string, role ferrule.PersonRole) (ferrule.KnownPerson, error)
	SetRole(by ferrule.Principal, name string, role ferrule.PersonRole) (ferrule.KnownPerson, error)
	Remove(by ferrule.Principal, name string) (ferrule.KnownPerson, error)
	// Logout ends all sessions of a person.
	Logout(by ferrule.Principal, name string) (ferrule.KnownPerson, error)
	// Link returns a link that logs in one browser, as the caller if name is empty.
	Link(by ferrule.Principal, name string) (ferrule.LoginLink, error)
}

// PersonInput has the arguments of remove_person and logout_person.
type PersonInput struct {
	Name string `json:"name" jsonschema:"name of the person"`
}

// PersonRoleInput has the arguments of add_person and set_person_role.
type PersonRoleInput struct {
	Name string `json:"name" jsonschema:"name of the person"`
	Role string `json:"role" jsonschema:"viewer, operator or owner"`
}

// LoginLinkInput has the arguments of create_login_link.
type LoginLinkInput struct {
	Name string `json:"name,omitempty" jsonschema:"name of the person; default: yourself"`
}

// ListPeopleInput has the arguments of list_people.
type ListPeopleInput struct{}

// ListPeopleOutput is the result of list_people.
type ListPeopleOutput struct {
	People []ferrule.KnownPerson `json:"people"`
}

// PeopleTools returns the tools that manage people.
func PeopleTools(people People) []Tool {
	role := func(change func(ferrule.Principal, string, ferrule.PersonRole) (ferrule.KnownPerson, error)) func(context.Context, *ferrule.Call, PersonRoleInput) (ferrule.KnownPerson, error) {
		return func(_ context.Context, call *ferrule.Call, in PersonRoleInput) (ferrule.KnownPerson, error) {
			role, err := ferrule.ParsePersonRole(in.Role)
			if err != nil {
				return ferrule.KnownPerson{}, ferrule.Errorf(ferrule.Invalid, "nothing was changed: %w", err)
			}
			return change(call.Principal, in.Name, role)
		}
	}
	named := func(change func(ferrule.Principal, string) (ferrule.KnownPerson, error)) func(context.Context, *ferrule.Call, PersonInput) (ferrule.KnownPerson, error) {
		return func(_ context.Context, call *ferrule.Call, in PersonInput) (ferrule.KnownPerson, error) {
			return change(call.Principal, in.Name)
		}
	}
	return []Tool{
		Typed("list_people", "Lists people who may log in with a browser, and those who are logged in on this node.", ferrule.Reads,
			func(context.Context, *ferrule.Call, ListPeopleInput) (ListPeopleOutput, error) {
				return ListPeopleOutput{people.List()}, nil
			}).ForPeople(),
		Typed("add_person", "Adds a person who may log in with a browser.", ferrule.Changes, role(people.Add)).ForPeople(),
		Typed("set_person_role", "Gives a person another role. The person has to log in again.", ferrule.Changes, role(people.SetRole)).ForPeople(),
		Typed("remove_person", "Removes a person and ends the person's sessions, on all nodes.", ferrule.Changes, named(people.Remove)).ForPeople(),
		Typed("logout_person", "Ends all sessions of a person, on all nodes.", ferrule.Changes, named(people.Logout)).ForPeople(),
		Typed("create_login_link", "Returns a link that logs in one browser, once, within five minutes. It is a secret.", ferrule.Changes,
			func(_ context.Context, call *ferrule.Call, in LoginLinkInput) (ferrule.LoginLink, error) {
				return people.Link(call.Principal, in.Name)
			}).ForPeople(),
	}
}
