package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/ops/audit"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestForgedJournalOnNATS checks that a program that connects to NATS as the tenant but has
// not its secret cannot add a record to the journal of a node. No node shows the record, all
// nodes name the message, and the node itself goes on copying.
func TestForgedJournalOnNATS(t *testing.T) {
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	boards := startSim(t, sim.Config{})
	a := startGateway(t, nil, func(c *config.Config) { joins(c, "a", servers) })
	b := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, func(c *config.Config) { joins(c, "b", servers) })
	a.online("robot")
	b.online("robot")
	conn, err := nats.Connect(servers.URLs())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	batches, err := conn.SubscribeSync("ferrule.*.journal.b.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	const pulse = `{"pin":2,"value":true}`
	if _, err := b.call("robot", "gpio_write", pulse, ample); err != nil {
		t.Fatal(err)
	}
	real, err := batches.NextMsg(ample)
	if err != nil {
		t.Fatal(err)
	}

	// The forged batch has the next number. Its hash is not checked when records are listed.
	forged := nats.NewMsg(real.Subject)
	for _, name := range []string{"Ferrule-Origin", "Ferrule-First", "Ferrule-Last"} {
		forged.Header.Set(name, real.Header.Get(name))
	}
	forged.Data = []byte(strings.Repeat("0", 64) + ` {"seq":1000,"time":"2026-11-18T12:00:00Z","call":"forged","phase":"outcome","principal":{"role":"person","name":"anna"},"device":"robot","tool":"forged_tool"}` + "\n")
	for range 2 {
		if _, err := conn.RequestMsg(forged, ample); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.call("robot", "gpio_write", pulse, ample); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*testGateway{a, b} {
		var report audit.Verification
		wait.For(t, "the journal of b is copied", func() bool {
			out, _ := exec.Command("ferrule", "audit", "verify", "--json", "--data", g.data).Output() // the exit code is 1
			first, _, _ := strings.Cut(string(out), "\n")
			report = audit.Verification{}
			if json.Unmarshal([]byte(first), &report) != nil {
				return false
			}
			copied := 0
			for _, c := range report.Chains {
				if c.Uncopied > 0 {
					return false
				}
				if c.Copy && c.Node == "b" {
					copied = c.Records
				}
			}
			return copied >= 4 // two calls
		})
		if report.Wrong != 1 || len(report.Forged) != 1 || report.Forged[0].Node != "b" || report.Forged[0].Messages != 2 {
			t.Errorf("got %+v", report)
		}
		out, err := exec.Command("ferrule", "audit", "--all", "--json", "--data", g.data).Output()
		if err != nil || strings.Contains(string(out), "forged_tool") || !strings.Contains(string(out), "gpio_write") {
			t.Errorf("the journal shows %s: %v", out, err)
		}
	}
}
