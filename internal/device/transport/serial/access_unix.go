//go:build unix

package serial

import (
	"errors"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// denied returns why this process may not open a port, and the group that may. It asks
// the system, which respects access lists that a udev rule may have added.
func denied(path string) (Denied, string) {
	if err := unix.Access(path, unix.R_OK|unix.W_OK); !errors.Is(err, os.ErrPermission) {
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
	why := whyDenied(info.Mode(), gid, sessionGroups(), loginGroups())
	if why == NoGroup {
		return why, ""
	}
	return why, groupName(gid)
}

// whyDenied returns why a user may not open a port that a group owns. Session are the
// groups of this process, login those of the next login.
func whyDenied(mode os.FileMode, gid int, session, login []int) Denied {
	switch {
	case mode.Perm()&0o060 != 0o060, gid == 0, slices.Contains(session, gid):
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
