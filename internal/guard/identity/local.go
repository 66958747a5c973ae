package identity

import (
	"cmp"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// SelfNamed returns the name of an agent on this machine, from the name that its program
// gives itself. It contains a slash, so it is never the name of a token or an endpoint.
func SelfNamed(client string) string {
	return "local/" + cmp.Or(ferrule.Slug(client), "unnamed")
}

// OfUser returns the name of such an agent if another user than the gateway's runs it. It
// has one slash more than SelfNamed, so it differs for every user, even one called local.
func OfUser(user, client string) string { return user + "/" + SelfNamed(client) }

// CurrentUser returns the name of the user who runs this process.
func CurrentUser() string { return User(os.Getuid()) }

// User returns the name of a user of this machine. A user without a name, or with a slash in
// it, is known by number: a slash separates the parts of an agent's name.
func User(uid int) string {
	number := strconv.Itoa(uid)
	u, err := user.Current() // known after the first time
	if uid != os.Getuid() {
		u, err = user.LookupId(number)
	}
	if err != nil || u.Username == "" || strings.Contains(u.Username, "/") {
		return "uid " + number
	}
	return u.Username
}
