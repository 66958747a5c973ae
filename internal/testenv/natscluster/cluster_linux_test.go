package natscluster_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
)

// logTime logs how long something took, and restarts the clock.
func logTime(t *testing.T, from *time.Time, what string) {
	t.Helper()
	now := time.Now()
	t.Logf("%s: %v", what, now.Sub(*from).Round(time.Millisecond))
	*from = now
}

// TestKill checks that a killed server restarts with its store, and that the others stay
// healthy.
func TestKill(t *testing.T) {
	from := time.Now()
	c := natscluster.Start(t, natscluster.Options{})
	logTime(t, &from, "three servers, built, healthy and with a leader")

	leader := c.Leader()
	pid := leader.Pid()
	leader.Kill()
	logTime(t, &from, leader.Name+", the leader, killed")
	if leader.Running() || leader.Healthy() == nil {
		t.Error("it is still running")
	}
	c.WaitHealthy()
	logTime(t, &from, "new leader")
	leader.Start()
	leader.WaitHealthy()
	logTime(t, &from, "healthy again after its start")
	if leader.Pid() == pid {
		t.Error("it is the same process")
	}
	c.WaitHealthy()

	leader.Stop()
	logTime(t, &from, "stopped")
	for _, s := range c.Servers {
		t.Logf("%s: process %d, %d MB, %v of CPU", s.Name, s.Pid(), s.RSS()>>20, s.CPU())
		if s.Running() != (s != leader) || (s.RSS() > 0) != s.Running() || (s.CPU() > 0) != s.Running() {
			t.Errorf("wrong state of %s: running %t", s.Name, s.Running())
		}
	}
}

// TestOne checks that a single server leads itself.
func TestOne(t *testing.T) {
	from := time.Now()
	c := natscluster.Start(t, natscluster.Options{Size: 1})
	logTime(t, &from, "one server")
	if c.Leader() != c.Servers[0] {
		t.Error("it does not lead itself")
	}
}

// TestPrefix checks that a server can be started with a command prefix.
func TestPrefix(t *testing.T) {
	env, err := exec.LookPath("env")
	if err != nil {
		t.Skip(err)
	}
	c := natscluster.Start(t, natscluster.Options{Size: 1, Domain: "elsewhere", Place: func(int) natscluster.Place {
		return natscluster.Place{Host: "127.0.0.2", Prefix: []string{env}}
	}})
	if got, want := c.Servers[0].URLAs(""), "nats://127.0.0.2:"; len(got) < len(want) || got[:len(want)] != want {
		t.Errorf("it listens at %s", got)
	}
}
