package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestForgedOnNATS checks that the node that holds a device decides about every call to
// it. A program that connects to NATS as the tenant but has not its secret cannot call
// as a person; a node whose own checks are skipped cannot skip those of the holder.
// Both are recorded there.
func TestForgedOnNATS(t *testing.T) {
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	boards := startSim(t, sim.Config{})
	a := startGateway(t, nil, func(c *config.Config) { joins(c, "a", servers) })
	b := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, func(c *config.Config) { joins(c, "b", servers) })
	a.online("robot")
	b.online("robot")

	// The attacker reads everything that nodes send, and repeats it with other content.
	conn, err := nats.Connect(servers.URLs())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	seen, err := conn.SubscribeSync("ferrule.*.node.b.*.call")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.call("robot", "gpio_write", `{"pin":2,"value":true}`, ample); err != nil {
		t.Fatal(err)
	}
	var real *nats.Msg
	for real == nil || !strings.Contains(string(real.Data), `"gpio_write"`) { // node a may ask for something else first
		if real, err = seen.NextMsg(ample); err != nil {
			t.Fatal(err)
		}
	}
	at := strings.Index(string(real.Data), `{"call":`) // the tag before it may have a { too
	if at < 0 {
		t.Fatalf("no call in %q", real.Data)
	}
	forged := strings.Replace(string(real.Data[at:]), `"role":"agent"`, `"role":"person"`, 1)
	forged = strings.Replace(forged, `"pin":2`, `"pin":99`, 1)
	for name, msg := range map[string]*nats.Msg{
		"without a tag":         {Subject: real.Subject, Reply: real.Reply, Data: []byte(forged)},
		"with the tag of a":     {Subject: real.Subject, Reply: real.Reply, Data: append(real.Data[:at:at], forged...)},
		"at another reply":      {Subject: real.Subject, Reply: real.Reply + "x", Data: real.Data},
		"at an inbox":           {Subject: real.Subject, Reply: conn.NewInbox(), Data: real.Data},
		"repeated word by word": {Subject: real.Subject, Reply: real.Reply, Data: real.Data},
	} {
		if err := conn.PublishMsg(msg); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	refused := func() (forged int) {
		for _, e := range b.outcomes("robot", "gpio_write") {
			if e.Principal.Role == ferrule.Unverified && e.Code == ferrule.Denied {
				forged++
			}
		}
		return forged
	}
	wait.For(t, "four forged calls are recorded", func() bool { return refused() == 4 })
	for _, tool := range []string{"adopt_device", "forget_device"} {
		data := []byte(`{"call":{"principal":{"role":"person","name":"owner"},"device":"gateway","tool":"` + tool + `","args":{"device":"robot"}}}`)
		if err := conn.PublishRequest(real.Subject, conn.NewInbox(), data); err != nil {
			t.Fatal(err)
		}
		wait.For(t, tool+" is recorded", func() bool { return len(b.outcomes(ferrule.GatewayID, tool)) == 1 })
	}
	if dev := b.device("robot"); dev.State != ferrule.StateOnline || dev.Trust != ferrule.TrustAdopted {
		t.Errorf("the robot is %+v", dev)
	}

	// Node a skips its own pipeline: the holder checks the arguments all the same.
	target, ok := a.Fleet.Target("robot")
	if !ok || !target.Remote {
		t.Fatalf("a has %+v", target)
	}
	call := &ferrule.Call{
		ID: "skipped", Principal: ferrule.Principal{Role: ferrule.Agent, Name: "test"}, Device: "robot", Tool: "gpio_write",
		Args: json.RawMessage(`{"pin":99,"value":true}`), Timeout: ferrule.Duration(wait.Ample), Target: target,
	}
	call.Target.Tool = target.Manifest.Tool("gpio_write")
	if _, err := target.Handler(t.Context(), call); ferrule.AsError(err).Code != ferrule.Invalid || !strings.Contains(err.Error(), "pin") {
		t.Errorf("invalid arguments from another node: %v", err)
	}
	wait.For(t, "it is recorded at b", func() bool {
		for _, e := range b.outcomes("robot", "gpio_write") {
			if e.Call == "skipped" && e.Via == "a" && e.Code == ferrule.Invalid {
				return true
			}
		}
		return false
	})
	ran := 0
	for _, e := range b.outcomes("robot", "gpio_write") {
		if e.Code == "" {
			ran++
		}
	}
	if ran != 1 {
		t.Errorf("%d calls ran, want the first only", ran)
	}
}
