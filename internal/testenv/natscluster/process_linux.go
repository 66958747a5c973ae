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

// dieWithUs has the kernel end the server if this process is killed.
func dieWithUs(run *exec.Cmd) {
	run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// RSS is how many bytes of memory the server uses, or 0 if it does not run.
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

// CPU is how long the server has worked since it was started, or 0 if it does not
// run.
func (s *Server) CPU() time.Duration {
	s.t.Helper()
	const hertz = 100 // of the clock in /proc, on every architecture of ours
	stat := s.proc("stat")
	_, stat, found := strings.Cut(stat, ") ") // the name may have spaces
	if !found {
		return 0
	}
	var ticks int64
	for _, field := range strings.Fields(stat)[11:13] { // in user and in system mode
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / hertz
}

// proc reads a file of the server's process. It is empty if there is none.
func (s *Server) proc(file string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.Pid(), file))
	if err != nil {
		return ""
	}
	return string(text)
}
