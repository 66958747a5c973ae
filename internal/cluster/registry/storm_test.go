package registry

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// settle runs until all leases had time to expire, and nodes to read again.
func (s *storm) settle(t *testing.T) {
	const quiet = 2 * (settleTime + settleJitter + LeaseTTL)
	for s.run(quiet); s.now-s.since-max(s.claimTime, s.seenTime) < quiet; s.run(time.Second) {
		if s.now-s.since > time.Hour {
			t.Fatal("servers are busy after an hour")
		}
	}
}

func mostOf(bySecond map[time.Duration]int) (most int) {
	for _, n := range bySecond {
		most = max(most, n)
	}
	return most
}

// log writes what happened, for docs/figures/storms.md.
func (s *storm) log(t *testing.T, what string) {
	t.Helper()
	t.Logf("%d nodes, %d devices, servers of %d cores, %s:", len(s.nodes), s.records, s.cores, what)
	t.Logf("  leases: %d deliveries in the busiest second, delayed by at most %v; longest time between two renewals %v, %d leases of healthy nodes expired",
		mostOf(s.sent), s.delay.Round(time.Millisecond), s.longest.Round(time.Millisecond), s.expired)
	if len(s.opened) > 0 {
		t.Logf("  records: %d watches opened in the busiest second, all nodes have read all records after %v", mostOf(s.opened), s.readTime.Round(time.Second))
	}
	if s.claimed > 0 {
		t.Logf("  devices: %d claimed by other nodes after %v, seen by all nodes after %v", s.claimed, s.claimTime.Round(time.Second), s.seenTime.Round(time.Second))
	}
}

// problems returns which limits are exceeded. A lease survives two more renewals that fail.
// Leases take at most half of what the servers can deliver. Watches are opened at most a
// quarter faster than if they were spread evenly over settleTime.
func (s *storm) problems() (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if most := s.ttl - 2*s.renew; s.longest > most {
		add("a lease was not renewed for %v, limit is %v", s.longest, most)
	}
	if s.expired > 0 {
		add("%d leases of healthy nodes expired", s.expired)
	}
	if most := s.servers * s.cores / measuredCores * changedRate / 2; mostOf(s.sent) > most {
		add("leases were delivered %d times in a second, limit is %d", mostOf(s.sent), most)
	}
	if s.delay > s.renew {
		add("a lease was delivered after %v, limit is %v", s.delay.Round(time.Millisecond), s.renew)
	}
	if most := len(s.nodes) * (s.shards + 1) / int(settleTime/time.Second) * 5 / 4; mostOf(s.opened) > most {
		add("%d watches opened in a second, limit is %d", mostOf(s.opened), most)
	}
	return problems
}

// TestStorms simulates a server that is killed, a region that fails, and its return.
func TestStorms(t *testing.T) {
	t.Parallel()
	for _, size := range []struct {
		nodes, devices, cores int
		served                time.Duration // limit until the devices of a failed region are claimed
	}{
		{100, 1_000_000, 2, 5 * time.Minute},
		{1000, 100_000, 8, 2 * time.Minute},
		{1000, 1_000_000, 8, 10 * time.Minute},
	} {
		s := newStorm(size.nodes, size.devices, size.cores)
		s.begin()
		s.loseServer(false)
		s.settle(t)
		s.log(t, "a server is killed")
		for _, problem := range s.problems() {
			t.Error(problem)
		}

		s = newStorm(size.nodes, size.devices, size.cores)
		s.begin()
		devices := s.loseRegion()
		s.settle(t)
		s.log(t, "a region fails")
		if s.claimed != devices || s.claimTime > size.served {
			t.Errorf("%d of %d devices claimed after %v, limit is %v", s.claimed, devices, s.claimTime, size.served)
		}
		s.forget()
		s.returnRegion()
		s.settle(t)
		s.log(t, "the region returns")
		if s.expired > 0 || s.delay > s.renew {
			t.Errorf("%d leases expired; one was delivered after %v", s.expired, s.delay)
		}
	}
}

// TestStormSilent loses a server that does not close connections. Its nodes notice so late
// that, rarely, a lease expires.
func TestStormSilent(t *testing.T) {
	t.Parallel()
	const runs, nodes = 20, 1000
	expired, longest := 0, time.Duration(0)
	for seed := range uint64(runs) {
		s := newStorm(nodes, 0, 8)
		s.rng = rand.New(rand.NewPCG(seed, 0))
		s.begin()
		s.loseServer(true)
		s.run(2 * LeaseTTL)
		expired, longest = expired+s.expired, max(longest, s.longest)
	}
	t.Logf("a server falls silent, %d nodes, %d runs: %d leases of healthy nodes expired; the longest was not renewed for %v", nodes, runs, expired, longest.Round(time.Millisecond))
	if limit := runs * nodes / 1000; expired > limit || longest > LeaseTTL+LeaseRenew {
		t.Errorf("%d leases expired, limit is %d; one was not renewed for %v", expired, limit, longest)
	}
}

// TestStormLimits checks that the simulation notices times and sizes that do not work.
func TestStormLimits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		but    string
		change func(*storm)
	}{
		{"a lease lasts 14s", func(s *storm) { s.ttl = maxElection + s.renew }},
		{"leases are renewed every second", func(s *storm) { s.renew = time.Second }},
		{"nodes read again without jitter", func(s *storm) { s.jitter = 0 }},
		{"servers have 2 cores", func(s *storm) { s.cores = measuredCores }},
		{"there are 2000 nodes", func(s *storm) { s.addNodes(len(s.nodes)) }},
	} {
		s := newStorm(1000, 100_000, 8)
		test.change(s)
		s.begin()
		s.loseServer(false)
		s.run(time.Minute)
		problems := s.problems()
		t.Logf("but if %s: %s", test.but, strings.Join(problems, "; "))
		if len(problems) == 0 {
			t.Errorf("no limit is exceeded if %s", test.but)
		}
	}
}
