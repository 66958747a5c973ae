package natscluster_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// attack is an attempt of a tenant to reach another through JetStream, which does not
// check the permissions of its client. All of them succeed if tenants share an account.
type attack struct {
	what string
	try  func(t *testing.T, acme, globex *client) (succeeded bool)
}

var attacks = []attack{
	{"reply to another tenant's node", func(t *testing.T, acme, globex *client) bool {
		sub, err := globex.SubscribeSync("ferrule.globex.node.n1.call")
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Unsubscribe()
		globex.Flush()
		acme.PublishRequest("$JS.API.DIRECT.GET.KV_ferrule-nodes.$KV.ferrule-nodes.acme.one", sub.Subject, nil)
		m, err := sub.NextMsg(4 * moment)
		return err == nil && string(m.Data) == "acme's own"
	}},
	{"reply as another tenant's key", func(t *testing.T, acme, globex *client) bool {
		acme.PublishRequest("$JS.API.DIRECT.GET.KV_ferrule-nodes.$KV.ferrule-nodes.acme.one", "$KV.ferrule-devices-0.globex.one", nil)
		acme.Flush()
		time.Sleep(2 * moment)
		return globex.get(t, "ferrule-devices-0", "globex.one") != "globex's own"
	}},
	{"consumer that delivers to another tenant's node", func(t *testing.T, acme, globex *client) bool {
		sub, err := globex.SubscribeSync("ferrule.globex.node.n1.call")
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Unsubscribe()
		globex.Flush()
		body := `{"stream_name":"KV_ferrule-nodes","config":{"name":"x","deliver_policy":"last_per_subject","ack_policy":"none","deliver_subject":"ferrule.globex.node.n1.call","filter_subject":"$KV.ferrule-nodes.acme.>"}}`
		if _, err := acme.Request("$JS.API.CONSUMER.CREATE.KV_ferrule-nodes.x.$KV.ferrule-nodes.acme.>", []byte(body), wait.Ample); err != nil {
			t.Fatal(err)
		}
		_, err = sub.NextMsg(4 * moment)
		return err == nil
	}},
	{"list another tenant's keys", func(t *testing.T, acme, _ *client) bool {
		m, err := acme.Request("$JS.API.STREAM.INFO.KV_ferrule-nodes", []byte(`{"subjects_filter":">"}`), wait.Ample)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(m.Data), "globex.one")
	}},
	{"message ID of another tenant's message", func(t *testing.T, acme, globex *client) bool {
		for _, c := range []*client{acme, globex} {
			m := nats.NewMsg("ferrule." + map[*client]string{acme: "acme", globex: "globex"}[c] + ".journal.n1.7")
			ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
			ack, err := c.js.PublishMsg(ctx, m, jetstream.WithMsgID("7"))
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			if ack.Duplicate {
				return true
			}
		}
		return false
	}},
	{"rollup that replaces all keys", func(t *testing.T, acme, globex *client) bool {
		m := nats.NewMsg("$KV.ferrule-kinds.acme.one")
		m.Header.Set("Nats-Rollup", "all")
		ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
		defer cancel()
		if _, err := acme.js.PublishMsg(ctx, m); err != nil {
			t.Fatal(err)
		}
		_, err := globex.bucket(t, "ferrule-kinds").Get(ctx, "globex.one")
		return err != nil
	}},
}

// TestAttacks checks that a tenant cannot reach another.
func TestAttacks(t *testing.T) {
	c := natscluster.Start(t, natscluster.Options{})
	operate(t, c.URLsAs("acme-operator"), "acme")
	operate(t, c.URLsAs("globex-operator"), "globex")
	acme, globex := connect(t, c.URLsAs("acme"), "acme", ""), connect(t, c.URLsAs("globex"), "globex", "")
	for _, a := range attacks {
		if a.try(t, acme, globex) {
			t.Errorf("%s: succeeded", a.what)
		}
	}
}
