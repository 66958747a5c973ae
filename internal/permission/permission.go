// Package permission finds out why this process may not use a file of the system, and which
// group may. It opens nothing.
package permission

// Denied is why a file may not be used; empty if it may.
type Denied string

const (
	// NotMember means that the user is not in the group that may use it.
	NotMember Denied = "not_member"
	// NeedsLogin means that the user joined the group after this login.
	NeedsLogin Denied = "needs_login"
	// NoGroup means that no group membership would help.
	NoGroup Denied = "no_group"
)
