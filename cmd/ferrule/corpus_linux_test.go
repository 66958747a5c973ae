package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mqttclient"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/zigbee"
)

// corpusDevices is how many devices the corpus has, with the bridge.
const corpusDevices = 4479

// corpusBroker starts a broker that has kept the whole corpus.
func corpusBroker(t *testing.T, corpus []zigbee.Message, lines ...string) *mosquitto.Broker {
	t.Helper()
	broker := mosquitto.Start(t, mosquitto.Options{Lines: lines})
	conn := brokerConn(t, broker)
	publishEach(t, conn, corpus, 1)
	publishEach(t, conn, []zigbee.Message{{Topic: "zigbee2mqtt/bridge/state", Payload: `{"state":"online"}`, Retain: true}}, 1)
	return broker
}

// brokerConn connects to a broker until the test ends.
func brokerConn(t *testing.T, broker *mosquitto.Broker) *mqttclient.Conn {
	t.Helper()
	cfg := mqttclient.DefaultConfig()
	cfg.URL = broker.URL
	client := mqttclient.New(cfg, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { client.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	conn, err := client.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// publishEach publishes messages, several at a time.
func publishEach(t *testing.T, conn *mqttclient.Conn, messages []zigbee.Message, qos byte) {
	t.Helper()
	var senders sync.WaitGroup
	defer senders.Wait()
	next := make(chan zigbee.Message)
	defer close(next)
	for range 8 {
		senders.Go(func() {
			for m := range next {
				err := conn.Publish(t.Context(), mqttclient.Publication{Topic: m.Topic, Payload: []byte(m.Payload), Retain: m.Retain, QoS: qos})
				if undelivered := (*transport.Undelivered)(nil); err != nil && !errors.As(err, &undelivered) {
					t.Errorf("publishing %s: %v", m.Topic, err)
				}
			}
		})
	}
	for _, m := range messages {
		next <- m
	}
}

// withCorpus adds a broker with everything that its devices offer.
func withCorpus(broker *mosquitto.Broker) func(*config.Config) {
	return func(c *config.Config) {
		withBroker(broker.URL)(c)
		c.Devices.MQTT[0].Settings, c.Devices.MQTT[0].Disabled = true, true
	}
}

// countOnline returns how many devices of brokers are online.
func (g *testGateway) countOnline() (n int) {
	for _, dev := range g.Fleet.Devices() {
		if dev.Hub != "" && dev.State == ferrule.StateOnline {
			n++
		}
	}
	return n
}

// memoryInUse returns the memory of objects and of stacks.
func memoryInUse() (objects, stacks int) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc), int(m.StackInuse)
}

// machineLoad returns the load of the machine, for times that depend on it.
func machineLoad() string {
	text, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	return fmt.Sprintf("load %s, %d cores", fields[0], runtime.NumCPU())
}

// TestCorpusDevices connects every device that Zigbee2MQTT supports, and an agent to them.
// It measures time and memory, and checks that what takes commands is callable.
func TestCorpusDevices(t *testing.T) {
	corpus := zigbee.Corpus(t)
	broker := corpusBroker(t, corpus, "max_queued_messages 0")
	objects, stacks := memoryInUse()
	goroutines, start := runtime.NumGoroutine(), time.Now()
	g := startGateway(t, nil, withCorpus(broker))
	eventually(t, 10*time.Minute, "all devices are online", func() bool {
		time.Sleep(50 * time.Millisecond)
		return g.countOnline() == corpusDevices
	})
	took := time.Since(start)
	t.Logf("%d devices are online after %v (%s)", corpusDevices, took.Round(time.Millisecond), machineLoad())
	moreObjects, moreStacks := memoryInUse()
	t.Logf("a device needs %d bytes of objects, %d bytes of stacks, %.2f goroutines",
		(moreObjects-objects)/corpusDevices, (moreStacks-stacks)/corpusDevices, float64(runtime.NumGoroutine()-goroutines)/corpusDevices)
	if file := os.Getenv("CORPUS_PROFILE"); file != "" {
		for range 8 {
			time.Sleep(2 * time.Second)
			o, s := memoryInUse()
			t.Logf("%d bytes of objects, %d bytes of stacks", (o-objects)/corpusDevices, (s-stacks)/corpusDevices)
		}
		f, _ := os.Create(file)
		pprof.WriteHeapProfile(f)
		f.Close()
	}
	g.checkCorpus(t, corpus)
}

// offered counts what became of the entities of one component.
type offered struct{ Entities, Commandable, Callable, Tools, Usable int }

// checkCorpus counts entities and tools by component.
func (g *testGateway) checkCorpus(t *testing.T, corpus []zigbee.Message) {
	t.Helper()
	type place struct{ device, component string }
	want, tools := map[place]*offered{}, map[place]int{}
	for _, m := range corpus {
		topic, ok := discovery.ParseTopic("homeassistant", m.Topic)
		if !ok {
			continue // an ID with a space
		}
		message, err := discovery.Parse(topic, []byte(m.Payload))
		if err != nil || len(message.Entities) != 1 {
			t.Fatalf("%s: %v", m.Topic, err)
		}
		e := &message.Entities[0]
		at := place{"house/" + strings.ToLower(message.Device.Identifiers[0]), e.Component}
		if want[at] == nil {
			want[at] = &offered{}
		}
		want[at].Entities++
		if slices.ContainsFunc(slices.Collect(maps.Keys(e.Options)), func(key string) bool { return strings.HasSuffix(key, "command_topic") }) {
			want[at].Commandable++
		}
		want[at].Tools += len(entity.Describe(e).Tools)
	}
	for _, dev := range g.Fleet.Devices() {
		_, m, _ := g.Fleet.Lookup(dev.ID)
		if m == nil {
			continue
		}
		for _, tool := range m.Tools {
			component, _, _ := strings.Cut(tool.Class, ".")
			if at := (place{strings.ToLower(dev.Address), component}); want[at] != nil && tool.Quarantine == "" {
				tools[at]++
			}
		}
	}
	all, total := map[string]*offered{}, offered{}
	for at, w := range want {
		if all[at.component] == nil {
			all[at.component] = &offered{}
		}
		w.Usable = tools[at]
		w.Callable = max(0, w.Commandable-max(0, w.Tools-w.Usable)) // a tool that is missing may be the only one of its entity
		for _, sum := range []*offered{all[at.component], &total} {
			sum.Entities, sum.Commandable, sum.Callable = sum.Entities+w.Entities, sum.Commandable+w.Commandable, sum.Callable+w.Callable
			sum.Tools, sum.Usable = sum.Tools+w.Tools, sum.Usable+w.Usable
		}
	}
	for _, component := range slices.Sorted(maps.Keys(all)) {
		t.Logf("%-14s %+v", component, *all[component])
	}
	t.Logf("%-14s %+v", "all", total)
	if total.Commandable != 20_284 || total.Callable*100 < total.Commandable*99 {
		t.Errorf("%d of %d entities that take commands are callable", total.Callable, total.Commandable)
	}
}
