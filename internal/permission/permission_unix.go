//go:build unix

package permission

import (
	"errors"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ToReadAndWrite returns why this process may not read and write a file, and the group that
// may. It asks the system, which respects access lists that a udev rule may have added.
func ToReadAndWrite(path string) (Denied, string) {
	return denied(path, unix.R_OK|unix.W_OK, 0o060)
}

// ToWrite returns why this process may not write to a file, and the group that may.
func ToWrite(path string) (Denied, string) { return denied(path, unix.W_OK, 0o020) }

// denied is about an access, which a group has with the given permissions.
func denied(path string, access uint32, needs os.FileMode) (Denied, string) {
	if err := unix.Access(path, access); !errors.Is(err, os.ErrPermission) {
		return "", ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return NoGroup, ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return NoGroup, ""
	}
	gid := int(stat.Gid)
	why := whyDenied(info.Mode(), needs, gid, sessionGroups(), loginGroups())
	if why == NoGroup {
		return why, ""
	}
	return why, groupName(gid)
}

// whyDenied returns why a user may not use a file that a group owns. Session are the
// groups of this process, login those of the next login.
func whyDenied(mode, needs os.FileMode, gid int, session, login []int) Denied {
	switch {
	case mode.Perm()&needs != needs, gid == 0, slices.Contains(session, gid):
		return NoGroup
	case slices.Contains(login, gid):
		return NeedsLogin
	}
	return NotMember
}

func sessionGroups() []int {
	groups, _ := os.Getgroups() // on error there are none
	return append(groups, os.Getegid())
}

func loginGroups() []int {
	u, err := user.Current()
	if err != nil {
		return nil
	}
	ids, _ := u.GroupIds()
	var groups []int
	for _, id := range ids {
		if n, err := strconv.Atoi(id); err == nil {
			groups = append(groups, n)
		}
	}
	return groups
}

// groupName returns the name of a group, or its number.
func groupName(gid int) string {
	id := strconv.Itoa(gid)
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	return id
}
