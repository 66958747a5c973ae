package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// mqtt checks the configured MQTT brokers, all at the same time.
func (d *Doctor) mqtt(ctx context.Context) []Finding {
	list := d.settings().Brokers()
	results := make([][]Finding, len(list))
	var tasks sync.WaitGroup
	for i, b := range list {
		tasks.Go(func() { results[i] = checkBroker(ctx, b) })
	}
	tasks.Wait()
	var all []Finding
	for i, found := range results {
		for _, f := range found {
			f.About = list[i].Name
			all = append(all, f)
		}
	}
	return all
}

// checkBroker connects to a broker as a client of its own, so that the gateway keeps its
// connection. It publishes one message, to a topic that nobody uses.
func checkBroker(ctx context.Context, b config.Broker) []Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTime-lateTime)
	defer cancel()
	client := mqttclient.New(b.Client(), slog.New(slog.DiscardHandler))
	changed := client.Changed() // before it runs: the first change may be the only one
	running, stop := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() { client.Run(running) })
	defer tasks.Wait()
	defer stop()
	select {
	case <-changed:
	case <-ctx.Done():
	}
	state := client.State()
	if !state.Connected {
		reason := state.Reason
		if ctx.Err() != nil {
			reason = "no answer in time"
		}
		return []Finding{{
			Check: "reach", State: Wrong, Found: fmt.Sprintf("broker %s at %s: %s", b.Name, b.URL, reason),
			Next: "correct the broker, or devices.mqtt in the configuration; then run `ferrule doctor` again",
		}}
	}
	conn, err := client.Connect(ctx)
	if err != nil {
		return []Finding{{Check: "reach", State: Wrong, Found: fmt.Sprintf("broker %s at %s: the connection was lost at once", b.Name, b.URL), Next: "look at the log of the broker"}}
	}
	all := []Finding{{Check: "reach", State: Fine, Found: fmt.Sprintf("broker %s at %s accepts the login, with MQTT %s", b.Name, b.URL, mqttclient.VersionName(conn.Version()))}}
	if conn.Version() == 4 {
		all[0].State, all[0].Next = Note, "use a broker with MQTT 5: with 3.1.1, calls that its rules forbid and calls to absent devices look like calls without an answer"
	}
	return append(all, mayRead(ctx, conn, b), mayPublish(ctx, conn, b), dropped(ctx, conn, b))
}

// rareComponents are components of discovery, those with the fewest messages first: one
// message is enough, and a flood of them would make the broker drop some.
var rareComponents = []string{"device", "lock", "climate", "cover", "light", "update", "binary_sensor", "switch", "sensor"}

// mayRead checks whether discovery messages arrive. A broker whose rules forbid to read
// accepts the subscription and sends nothing.
func mayRead(ctx context.Context, conn *mqttclient.Conn, b config.Broker) Finding {
	for _, component := range rareComponents {
		base := b.Prefix + "/" + component
		m, err := firstMessage(ctx, conn, base+"/+/config", base+"/+/+/config")
		if err != nil {
			return Finding{Check: "read", State: Wrong, Found: fmt.Sprintf("broker %s: %v", b.Name, err), Next: fmt.Sprintf("allow this user to read %s/# in the rules of the broker", b.Prefix)}
		}
		if m.Topic != "" {
			return Finding{Check: "read", State: Fine, Found: fmt.Sprintf("broker %s has descriptions of devices under %s/", b.Name, b.Prefix)}
		}
	}
	return Finding{
		Check: "read", State: Note, Found: fmt.Sprintf("broker %s has no descriptions of devices under %s/", b.Name, b.Prefix),
		Next: fmt.Sprintf("turn on Home Assistant discovery in what publishes there, check `prefix`, and allow this user to read %s/#", b.Prefix),
	}
}

// mayPublish checks whether the broker accepts messages from this user. Only MQTT 5 says.
func mayPublish(ctx context.Context, conn *mqttclient.Conn, b config.Broker) Finding {
	topic := "ferrule/doctor/" + rand.Text()
	err := conn.Publish(ctx, mqttclient.Publication{Topic: topic, QoS: 1, Expiry: time.Second})
	var undelivered *mqttclient.Undelivered
	switch {
	case errors.As(err, &undelivered) && undelivered.Denied:
		return Finding{
			Check: "publish", State: Note, Found: fmt.Sprintf("broker %s forbids this user to publish to ferrule/doctor/", b.Name),
			Next: "check that its rules allow the command topics of your devices, such as zigbee2mqtt/+/set",
		}
	case err != nil && undelivered == nil:
		return Finding{Check: "publish", State: Wrong, Found: fmt.Sprintf("broker %s did not confirm a message: %v", b.Name, err), Next: "look at the log of the broker"}
	}
	return Finding{Check: "publish", State: Fine, Found: fmt.Sprintf("broker %s accepts messages from this user", b.Name)}
}

// dropped checks how many messages the broker dropped. Mosquitto drops what a subscriber
// does not take in time, without a word.
func dropped(ctx context.Context, conn *mqttclient.Conn, b config.Broker) Finding {
	m, err := firstMessage(ctx, conn, mqttclient.Dropped)
	n, bad := strconv.ParseUint(strings.TrimSpace(string(m.Payload)), 10, 64)
	switch {
	case err != nil || bad != nil:
		return Finding{Check: "dropped", State: Fine, Found: fmt.Sprintf("broker %s does not say how many messages it dropped", b.Name)}
	case n > 0:
		return Finding{
			Check: "dropped", State: Note, Found: fmt.Sprintf("broker %s has dropped %d messages since it started; devices may be missing", b.Name, n),
			Next: "set `max_queued_messages 0` in mosquitto.conf and restart the broker",
		}
	}
	return Finding{Check: "dropped", State: Fine, Found: fmt.Sprintf("broker %s has dropped no messages", b.Name)}
}

// firstMessage returns the first message that a subscription brings; an empty one if none
// comes soon.
func firstMessage(ctx context.Context, conn *mqttclient.Conn, topics ...string) (mqttclient.Message, error) {
	found := make(chan mqttclient.Message, 1)
	var filters []mqttclient.Filter
	for _, topic := range topics {
		filters = append(filters, mqttclient.Filter{Topic: topic})
	}
	end, err := conn.Subscribe(ctx, func(m mqttclient.Message) {
		select {
		case found <- m:
		default:
		}
	}, filters...)
	if err != nil {
		return mqttclient.Message{}, err
	}
	defer end()
	select {
	case m := <-found:
		return m, nil
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
	}
	return mqttclient.Message{}, nil
}
