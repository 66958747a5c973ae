package main

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestPeopleOnNodes lets a person in on three nodes, who approves on one of them a call on
// another. When the person is removed on the third, all sessions end.
func TestPeopleOnNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	servers := natscluster.Start(t, natscluster.Options{})
	boards := startSim(t, sim.Config{})
	var nodes []*testGateway
	for _, name := range []string{"a", "b", "c"} {
		devices := make(map[string]string)
		if name == "a" {
			devices["robot"] = boards.Addrs()[0]
		}
		nodes = append(nodes, startGateway(t, devices, unmeasured, withGuarded(t, "pulse"), func(c *config.Config) {
			c.Cluster.Mode, c.Cluster.Tenant, c.Cluster.Secret, c.Cluster.Shards, c.Cluster.Node = "join", "acme", servers.Secret, 4, name
			c.Cluster.Servers = strings.Split(servers.URLsAs("acme-operator"), ",")
		}))
	}
	for _, n := range nodes {
		wait.For(t, "nodes see each other", func() bool { return len(n.Cluster.State().Nodes) == 2 })
	}
	nodes[0].online("robot")
	nodes[0].command("people", "add", "ben", "--role", "operator")
	var all []*person
	for _, n := range nodes {
		wait.For(t, "ben is known", func() bool {
			return slices.ContainsFunc(n.People.List(), func(p ferrule.KnownPerson) bool { return p.Name == "ben" })
		})
		all = append(all, n.login("--as", "ben"))
	}
	done := make(chan error, 1)
	go func() {
		_, err := nodes[0].call("robot", "pulse", `{"token":"far"}`, 0)
		done <- err
	}()
	var page string
	wait.For(t, "the request is on the page of another node", func() bool {
		_, page = all[1].open("/approvals", nil)
		return strings.Contains(page, "pulse")
	})
	if strings.Contains(page, "No answer from") {
		t.Error(page)
	}
	code, answered := all[1].open("/approvals", url.Values{"id": {nodes[0].Approvals.List()[0].ID}, "answer": {"allow"}, "csrf": {csrfIn(page)}})
	if code != http.StatusOK {
		t.Errorf("%d %s", code, answered)
	}
	if err := <-done; err != nil || boards.Boards[0].Runs()["far"] != 1 {
		t.Error(err, boards.Boards[0].Runs())
	}

	began := time.Now()
	nodes[2].command("people", "remove", "ben")
	for _, n := range nodes {
		wait.For(t, "the session has ended", func() bool { return len(n.People.List()) == 0 })
	}
	figure.AtMost(t, "time until all sessions of a removed person have ended", time.Since(began), time.Second)
	for _, p := range all {
		if _, page := p.open("/approvals", nil); !strings.Contains(page, "Log in to Ferrule") {
			t.Error(page)
		}
	}
}
