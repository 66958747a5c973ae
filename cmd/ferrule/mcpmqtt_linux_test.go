package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/mcpmqtt"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// offersItself adds a broker on which the gateway offers itself.
func offersItself(url, name string) func(*config.Config) {
	return func(c *config.Config) {
		c.Devices.MQTT = []config.Broker{{URL: url, Name: "house", Adopt: "all", Offer: name}}
		c.Policy.Preset = "open"
	}
}

// TestMCPOverMQTT: a gateway offers itself on a broker. Another one finds it there, and uses
// a board through it. The broker and the first gateway end and come back.
func TestMCPOverMQTT(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	fleet := startSim(t, sim.Config{})
	near := startGateway(t, map[string]string{"robot": fleet.Addrs()[0]}, offersItself(broker.URL, "ferrule/near"), unmeasured)
	near.online("robot")
	far := startGateway(t, nil, withBroker(broker.URL), unmeasured)
	pending := func() bool {
		dev := far.device("ferrule-near")
		return dev.ID != "" && dev.Trust == ferrule.TrustPending && strings.Contains(dev.Reason, "it is a gateway itself")
	}
	wait.For(t, "the gateway is found and not used", pending)
	if err := far.Dock.Adopt("ferrule-near"); err != nil {
		t.Fatal(err)
	}
	far.online("ferrule-near")
	use := func() {
		t.Helper()
		for _, value := range []string{"true", "false"} {
			if _, err := far.call("ferrule-near", "robot__gpio_write", `{"pin":2,"value":`+value+`}`, 0); err != nil {
				t.Fatal(err)
			}
			read, err := far.call("ferrule-near", "robot__gpio_read", `{"pin":2}`, 0)
			if err != nil || !strings.Contains(read, value) {
				t.Errorf("read %s, %v; want %s", read, err, value)
			}
		}
	}
	use()
	broker.Kill()
	wait.For(t, "it is offline", func() bool { return far.device("ferrule-near").State != ferrule.StateOnline })
	broker.Restart(t)
	far.online("ferrule-near")
	use()
	near.stop()
	wait.For(t, "it is offline", func() bool { return far.device("ferrule-near").State != ferrule.StateOnline })
	if _, err := far.call("ferrule-near", "robot__gpio_read", `{"pin":2}`, time.Second); ferrule.AsError(err).Code != ferrule.Offline {
		t.Errorf("a call of a gateway that ended: %v", err)
	}
	if near.device("ferrule-near").ID != "" {
		t.Error("the gateway is a device of its own")
	}
}

// TestEMQXClient: a client that is made with EMQX's SDK lists and calls the tools of a
// gateway that is offered on the broker.
func TestEMQXClient(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	fleet := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": fleet.Addrs()[0]}, offersItself(broker.URL, "ferrule/home"), unmeasured)
	g.online("robot")
	client := mcpmqtt.Client(t, broker.Address, "ferrule/home")
	var about struct {
		Server string
		Tools  []string
	}
	client.Next(&about)
	if !slices.Contains(about.Tools, "robot__gpio_write") {
		t.Fatalf("it sees %+v", about)
	}
	if text, failed := client.Call("robot__gpio_write", `{"pin":2,"value":true}`); failed {
		t.Errorf("it got %s", text)
	}
	if text, failed := client.Call("robot__gpio_read", `{"pin":2}`); failed || !strings.Contains(text, "true") {
		t.Errorf("it got %s", text)
	}
	if text, failed := client.Call("robot__gpio_read", `{"pin":-1}`); !failed {
		t.Errorf("it got %s, want an error", text)
	}
	client.Leave()
}

// TestEMQXServer: a server that is made with EMQX's SDK is a device. It ends in order and is
// killed, and comes back.
func TestEMQXServer(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	g := startGateway(t, nil, withBroker(broker.URL), unmeasured)
	online := func(want bool) {
		t.Helper()
		wait.For(t, "online or not", func() bool { return (g.device("demo-calc").State == ferrule.StateOnline) == want })
	}
	for _, end := range []func(*mcpmqtt.Peer){(*mcpmqtt.Peer).Leave, (*mcpmqtt.Peer).Kill, (*mcpmqtt.Peer).Kill} {
		server := mcpmqtt.Server(t, broker.Address, "calc-1", "demo/calc")
		online(true)
		sum, err := g.call("demo-calc", "add", `{"a":2,"b":40}`, 0)
		if err != nil || !strings.Contains(sum, "42") {
			t.Errorf("got %s, %v", sum, err)
		}
		var ran struct{ Added []int }
		if server.Next(&ran); !slices.Equal(ran.Added, []int{2, 40}) {
			t.Errorf("it ran %+v", ran)
		}
		end(server)
		online(false)
	}
}
