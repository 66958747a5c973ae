package natscluster

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killWithParent has the kernel kill the server if this process dies.
func killWithParent(run *exec.Cmd) {
	run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// RSS returns the resident memory of the server in bytes, or 0 if it is not running.
func (s *Server) RSS() int64 {
	s.t.Helper()
	for line := range strings.Lines(s.proc("status")) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kilobytes int64
			if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
				s.t.Fatal(err)
			}
			return kilobytes * 1024
		}
	}
	return 0
}

// CPU returns the processor time of the server since its start, or 0 if it is not running.
func (s *Server) CPU() time.Duration {
	s.t.Helper()
	const hertz = 100 // of the clock in /proc, on all our architectures
	stat := s.proc("stat")
	_, stat, found := strings.Cut(stat, ") ") // the name may contain spaces
	if !found {
		return 0
	}
	var ticks int64
	for _, field := range strings.Fields(stat)[11:13] { // user and system time
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / hertz
}

// proc reads a file in /proc of the server, or returns an empty string.
func (s *Server) proc(file string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.Pid(), file))
	if err != nil {
		return ""
	}
	return string(text)
}
