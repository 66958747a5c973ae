package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestRemoteHistory checks that the measurements of a board on another node are returned
// by that node, with the calls made through this one, and that an error names the node
// when it is away.
func TestRemoteHistory(t *testing.T) {
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	here, there := newNode(t, "here", 0, joining(servers, "replicas: 1")), newNode(t, "there", 1, joining(servers, "replicas: 1"))
	here.start()
	there.start()
	here.reaches("there-0", 30*time.Second)
	if _, err := here.call("there-0", "gpio_write", `{"pin":2,"value":true}`); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "it has measurements", func() bool {
		result, err := here.call(ferrule.GatewayID, "history", `{"device":"there-0","signals":["light"]}`)
		var out builtin.HistoryOutput
		return err == nil && json.Unmarshal(result.Value, &out) == nil && len(out.Signals) == 1 && len(out.Signals[0].Points) > 0
	})
	result, err := here.call(ferrule.GatewayID, "latest", `{"device":"there-0","signal":"light"}`)
	if err != nil || !strings.Contains(string(result.Value), `"name":"light"`) {
		t.Errorf("%+v, %v", result, err)
	}
	wait.For(t, "the call is marked in a chart", func() bool {
		result, err := here.call(ferrule.GatewayID, "plot", `{"device":"there-0","signals":["light"]}`)
		return err == nil && len(result.Content) == 2 && len(result.Content[0].Data) > 1000 && strings.Contains(result.Content[1].Text, "Marked calls: ")
	})
	if result, err := here.call(ferrule.GatewayID, "sql", `{"query":"SELECT count(*) FROM signals"}`); err != nil || string(result.Value) != `{"columns":["count(*)"],"rows":[[0]]}` {
		t.Errorf("nothing is measured at this node: %s, %v", result.Value, err)
	}
	there.kill()
	wait.For(t, "the error names the node", func() bool {
		_, err := here.call(ferrule.GatewayID, "latest", `{"device":"there-0"}`)
		return err != nil && strings.Contains(err.Error(), "node there does not answer; it has the measurements of there-0")
	})
}
