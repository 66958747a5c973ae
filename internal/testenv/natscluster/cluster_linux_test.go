package natscluster_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
)

// since logs how long something took, and begins anew.
func since(t *testing.T, from *time.Time, what string) {
	t.Helper()
	now := time.Now()
	t.Logf("%s: %v", what, now.Sub(*from).Round(time.Millisecond))
	*from = now
}

// TestKill: a server that is killed is gone, comes back with its store, and the
// others stay well meanwhile.
func TestKill(t *testing.T) {
	from := time.Now()
	c := natscluster.Start(t, natscluster.Options{})
	since(t, &from, "three servers, built, healthy and with a leader")

	leader := c.Leader()
	pid := leader.Pid()
	leader.Kill()
	since(t, &from, leader.Name+", which leads, killed")
	if leader.Running() || leader.Healthy() == nil {
		t.Error("it lives")
	}
	c.WaitHealthy()
	since(t, &from, "another leads")
	leader.Start()
	leader.WaitHealthy()
	since(t, &from, "healthy again after its start")
	if leader.Pid() == pid {
		t.Error("it is the same process")
	}
	c.WaitHealthy()

	leader.Stop()
	since(t, &from, "stopped")
	for _, s := range c.Servers {
		t.Logf("%s: process %d, %d MB, %v of CPU", s.Name, s.Pid(), s.RSS()>>20, s.CPU())
		if s.Running() != (s != leader) || (s.RSS() > 0) != s.Running() || (s.CPU() > 0) != s.Running() {
			t.Errorf("%s is not as it should be", s.Name)
		}
	}
}

// TestOne: a server may be alone.
func TestOne(t *testing.T) {
	from := time.Now()
	c := natscluster.Start(t, natscluster.Options{Size: 1})
	since(t, &from, "one server")
	if c.Leader() != c.Servers[0] {
		t.Error("it does not lead itself")
	}
}

// TestPrefix: a server may be started by another command.
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
