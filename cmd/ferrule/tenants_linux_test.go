package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestTenants runs nodes of two tenants on one cluster, with limited rights. A tenant's
// first node cannot create shared streams and says what to do; it works after an
// operator's node has run. Nodes of a tenant share devices, journals and events, and see
// nothing of the other tenant, although both use the same names.
func TestTenants(t *testing.T) {
	t.Parallel()
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	one := func(user, tenant string) string { return joiningAs(servers, user, tenant, "replicas: 1") }
	a, leaf := newNode(t, "a", 1, one("acme", "acme")), newNode(t, "leaf", 1, dialling(servers))
	for _, n := range []*upNode{a, leaf} {
		n.start()
	}
	for _, n := range []*upNode{a, leaf} {
		wait.For(t, n.name+" says what to do", func() bool {
			return strings.Contains(n.nodes().Reason, "start a node once with the credentials of acme's operator")
		})
		t.Logf("%s says: %s", n.name, n.nodes().Reason)
	}
	for _, tenant := range []string{"acme", "globex"} {
		operator := newNode(t, "operator", 0, one(tenant+"-operator", tenant))
		operator.start()
		wait.For(t, "the operator's node works", func() bool { return operator.nodes().Working })
		operator.stop()
	}

	b, g := newNode(t, "b", 1, one("acme", "acme")), newNode(t, "a", 1, one("globex", "globex"))
	b.start()
	g.start()
	for _, n := range []*upNode{a, b, leaf} {
		for _, id := range []string{"a-0", "b-0", "leaf-0"} {
			n.reaches(id, 30*time.Second)
		}
	}
	g.reaches("a-0", 30*time.Second)
	wait.For(t, "the nodes know each other", func() bool {
		return slices.Equal(a.nodes().Others, []string{"b", "leaf"}) && slices.Equal(leaf.nodes().Others, []string{"a", "b"})
	})
	if others := g.nodes().Others; others != nil {
		t.Errorf("globex sees %q", others)
	}

	for _, from := range []*upNode{a, b, g} {
		if _, err := from.call("a-0", "pulse", fmt.Sprintf(`{"token":"%p"}`, from)); err != nil {
			t.Error(err)
		}
	}
	if got := len(a.boards.Boards[0].Runs()); got != 2 {
		t.Errorf("acme's board ran %d times", got)
	}
	if got := len(g.boards.Boards[0].Runs()); got != 1 {
		t.Errorf("globex's board ran %d times", got)
	}
	if _, err := g.call("b-0", "pulse", `{"token":"x"}`); ferrule.AsError(err).Code != ferrule.NotFound {
		t.Errorf("a device of acme, from globex: %v", err)
	}
	if d := b.device("a-0"); d.Node != "a" || d.Address != a.boards.Addrs()[0] {
		t.Errorf("b sees %+v", d)
	}

	journals := map[*upNode][]string{a: {"a", "b", "leaf"}, leaf: {"a", "b", "leaf"}, g: {"a"}}
	for from, want := range journals {
		wait.For(t, fmt.Sprintf("%s has the journals of %q", from.name, want), func() bool {
			return slices.Equal(journalsAt(from), want)
		})
	}
	for tenant, want := range map[string][]string{"acme": {"a.a-0.appeared", "b.b-0.appeared", "leaf.leaf-0.appeared"}, "globex": {"a.a-0.appeared"}} {
		if got := eventsOf(t, servers, tenant); !slices.Equal(got, want) {
			t.Errorf("events of %s are %q, want %q", tenant, got, want)
		}
	}
}

// nodes returns the cluster state of a node.
func (n *upNode) nodes() builtin.Nodes {
	result, err := n.call(ferrule.GatewayID, "status", "{}")
	if err != nil {
		return builtin.Nodes{}
	}
	var status builtin.StatusOutput
	if err := json.Unmarshal(result.Value, &status); err != nil || status.Nodes == nil {
		n.t.Fatal(err)
	}
	return *status.Nodes
}

// journalsAt returns the nodes whose journals a node can read besides the operator's;
// nil if one is damaged.
func journalsAt(n *upNode) (nodes []string) {
	out, err := exec.Command("ferrule", "audit", "verify", "--json", "--data", n.data).Output()
	var report audit.Verification
	if err != nil || json.Unmarshal(out, &report) != nil || report.Wrong > 0 {
		return nil
	}
	for _, c := range report.Chains {
		if c.Uncopied > 0 {
			return nil
		}
		if c.Copy && c.Node != "operator" {
			nodes = append(nodes, c.Node)
		}
	}
	return nodes
}

// eventsOf returns the events in a tenant's stream, as its operator reads them.
func eventsOf(t *testing.T, servers *natscluster.Cluster, tenant string) (all []string) {
	t.Helper()
	conn, err := nats.Connect(servers.URLsAs(tenant + "-operator"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := js.OrderedConsumer(t.Context(), "ferrule-events", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := consumer.FetchNoWait(1000)
	if err != nil {
		t.Fatal(err)
	}
	for msg := range batch.Messages() {
		all = append(all, strings.TrimPrefix(msg.Subject(), "ferrule."+tenant+".event."))
	}
	slices.Sort(all)
	return all
}
