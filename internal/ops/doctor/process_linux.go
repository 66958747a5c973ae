package doctor

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// peerOf returns the process that listens at the other end of a connection.
func peerOf(conn *net.UnixConn) (pid int) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// commandOf returns the command line of a process, or "" if it cannot be read.
func commandOf(root string, pid int) string {
	if pid == 0 {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(root, "proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ReplaceAll(string(data), "\x00", " "))
}

// lockHolder returns the process that has a file locked, or 0 if it is not locked. It
// does not try the lock, because that would disturb a gateway that is just starting.
func lockHolder(root, path string) (pid int, ok bool) {
	locks, err := os.Open(filepath.Join(root, "proc/locks"))
	if err != nil {
		return 0, false
	}
	defer locks.Close()
	info, err := os.Stat(path)
	if err != nil {
		return 0, errors.Is(err, os.ErrNotExist)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	for in := bufio.NewScanner(locks); in.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 23819 fe:00:9986754 0 EOF
		words := strings.Fields(in.Text())
		if len(words) < 6 || words[1] != "FLOCK" {
			continue
		}
		pid, _ := strconv.Atoi(words[4])
		place := strings.Split(words[5], ":")
		if len(place) != 3 || place[2] != strconv.FormatUint(stat.Ino, 10) || pid < 1 {
			continue
		}
		if sameDevice(place, uint64(stat.Dev)) || hasOpen(root, pid, info) {
			return pid, true
		}
	}
	return 0, true
}

// sameDevice compares the device of a line in /proc/locks with that of a file. Some file
// systems have several numbers, so a mismatch proves nothing.
func sameDevice(place []string, dev uint64) bool {
	major := dev>>8&0xfff | dev>>32&^0xfff
	minor := dev&0xff | dev>>12&^0xff
	return place[0] == fmt.Sprintf("%02x", major) && place[1] == fmt.Sprintf("%02x", uint32(minor))
}

// hasOpen reports whether a process has a file open.
func hasOpen(root string, pid int, file os.FileInfo) bool {
	files, _ := filepath.Glob(filepath.Join(root, "proc", strconv.Itoa(pid), "fd/*"))
	for _, f := range files {
		to, err := os.Readlink(f)
		if err != nil || filepath.Base(to) != file.Name() {
			continue // stat of a file on a dead network disk could hang
		}
		if info, err := os.Stat(f); err == nil && os.SameFile(info, file) {
			return true
		}
	}
	return false
}

// portHolder returns the process that listens on a TCP port, if this user can see it.
func portHolder(root string, port int) process {
	sockets := make(map[string]bool)
	for _, name := range []string{"tcp", "tcp6"} {
		data, _ := os.ReadFile(filepath.Join(root, "proc/net", name)) // either may be missing
		for line := range strings.Lines(string(data)) {
			// 0: 0100007F:0D31 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 12345 …
			words := strings.Fields(line)
			if len(words) > 9 && words[3] == "0A" && strings.HasSuffix(words[1], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+words[9]+"]"] = true
			}
		}
	}
	if len(sockets) == 0 {
		return process{}
	}
	files, _ := filepath.Glob(filepath.Join(root, "proc/[0-9]*/fd/*"))
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && sockets[to] {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(file))))
			return process{pid, commandOf(root, pid)}
		}
	}
	return process{}
}
