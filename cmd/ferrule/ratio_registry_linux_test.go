//go:build bench

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var manyDevices = flag.Int("devices", 100_000, "how many devices TestRatioRegistry registers")

// What is registered: devices of a thousand Kinds or more, in rounds of a tenant each,
// and one tenant of five thousand devices of five Kinds that a fresh node serves.
const (
	registryShards = 16
	registryRounds = 3
	perKind        = 100 // devices of a Kind
	mostOfTenant   = 100_000
	tenantDevices  = 5000
	tenantKinds    = 5
)

// freshLimit keeps a fresh node from becoming slower. The goal of 1.3 is not reached:
// besides reading records, a node applies overlays to manifests and puts every device
// into its fleet and catalog.
const freshLimit = 2.5

// loadLimit returns the limit for loading. Short rounds on a shared machine only show
// that nothing has become much slower.
func loadLimit(each int) float64 {
	if each == mostOfTenant {
		return 1.3
	}
	return 2
}

// TestRatioRegistry compares the registry on three real servers to bare KV buckets of
// the same size: the time to load, the memory of the servers, and the time until a new
// node serves a tenant. They take turns.
func TestRatioRegistry(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(gateway.SmallHeapGOGC)) // this process has more heap than a node
	ours, bare := newRegistrySide(t), newBareSide(t)
	const warm = 2000
	ours.load(t, "warm", warm, warm/perKind, ferrule.StateOffline)
	bare.like(t, ours, "warm")
	bare.load(t, "warm", warm, warm/perKind, true)
	oursBefore, bareBefore := settledRSS(ours.servers), settledRSS(bare.servers)

	each := min(*manyDevices/registryRounds, mostOfTenant)
	var got, base []time.Duration
	for i := range *manyDevices / each {
		tenant := fmt.Sprintf("t%d", i)
		sides := []func(){
			func() { got = append(got, ours.load(t, tenant, each, each/perKind, ferrule.StateOffline)) },
			func() { base = append(base, bare.load(t, tenant, each, each/perKind, true)) },
		}
		sides[i%2]()
		sides[1-i%2]()
	}
	ours.load(t, "tenant", tenantDevices, tenantKinds, ferrule.StateOnline)
	bare.load(t, "tenant", tenantDevices, tenantKinds, true)
	total := len(got)*each + tenantDevices
	oursMemory, bareMemory := settledRSS(ours.servers)-oursBefore, settledRSS(bare.servers)-bareBefore
	ours.complete(t, warm+total)

	t.Logf("%d devices in %d shards of three replicas, of %d Kinds; a record is %d bytes, a manifest %d", total, registryShards, len(got)*each/perKind+tenantKinds, len(bare.record), len(bare.manifest))
	most(t, fmt.Sprintf("loading the registry by %d devices against creating as many keys", each), got, base, loadLimit(each))
	t.Logf("that is %.0f records a second, bare %.0f", float64(each)/median(got).Seconds(), float64(each)/median(base).Seconds())
	most(t, "bytes of RSS of the three servers together for a device against bare KV", []int{oursMemory / total}, []int{bareMemory / total}, 1.3)

	ours.quiet(t, tenantDevices)
	var fronts, readers, plain []time.Duration
	for i := range 1 + rounds {
		var g, r, p []time.Duration
		for range 3 {
			g, r, p = append(g, ours.freshNode(t)), append(r, bare.freshNode(t, true)), append(p, bare.freshNode(t, false))
		}
		if i > 0 { // the first is to warm up
			fronts, readers, plain = append(fronts, median(g)), append(readers, median(r)), append(plain, median(p))
		}
	}
	what := fmt.Sprintf("until a fresh node serves a tenant of %d devices", tenantDevices)
	most(t, what+" against reading as many keys", fronts, readers, freshLimit)
	t.Logf("%s: %v, %.2f times what it takes until as many values have come, unread: %v", what, median(fronts), float64(median(fronts))/float64(median(plain)), median(plain))
	bare.blind(t, each) // last, because it leaves more data than the other side has
	ours.weigh(t, each)
}

// settledRSS returns the memory of servers after they had time to release some.
func settledRSS(c *natscluster.Cluster) (sum int) {
	time.Sleep(2 * time.Second)
	for _, s := range c.Servers {
		sum += int(s.RSS())
	}
	return sum
}

// registrySide is Ferrule's side.
type registrySide struct {
	servers *natscluster.Cluster
	count   int
}

func newRegistrySide(t *testing.T) *registrySide {
	return &registrySide{servers: natscluster.Start(t, natscluster.Options{})}
}

// node returns a gateway that has joined the servers and does not run yet.
func (r *registrySide) node(t *testing.T, tenant string) (g *gateway.Gateway, end func()) {
	t.Helper()
	cfg := testConfig()
	cfg.Listen = ""
	r.count++
	cfg.Cluster.Mode, cfg.Cluster.Tenant, cfg.Cluster.Node = "join", tenant, fmt.Sprintf("node-%d", r.count)
	cfg.Cluster.Servers, cfg.Cluster.Shards = strings.Split(r.servers.URLs(), ","), registryShards
	cfg.Cluster.Secret = r.servers.Secret
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Parts{Config: cfg, Data: t.TempDir(), Version: version(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() { g.Close() })
	t.Cleanup(end)
	return g, end
}

// runPart runs a part of a gateway until stop is called or the test ends.
func runPart(t *testing.T, part func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- part(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// load lets a node register devices.
func (r *registrySide) load(t *testing.T, tenant string, devices, kinds int, state ferrule.State) time.Duration {
	t.Helper()
	g, end := r.node(t, tenant)
	populate(t, g, devices, kinds, state)
	start := time.Now()
	stop := runPart(t, g.Cluster.Run)
	wait.Within(t, 5*time.Minute, "all records are in the registry", func() bool { return g.Cluster.State().Waiting == 0 })
	took := time.Since(start)
	if tenant != "tenant" {
		stop()
		end()
	}
	return took
}

// populate adds devices to a node: remembered ones are offline, admitted ones online.
func populate(t *testing.T, g *gateway.Gateway, devices, kinds int, state ferrule.State) {
	t.Helper()
	laid := make([]*ferrule.Manifest, kinds)
	of := make([]ferrule.Kind, kinds)
	for k := range kinds {
		laid[k] = someManifest(k)
		kind, err := laid[k].Kind()
		if err != nil {
			t.Fatal(err)
		}
		of[k] = kind
	}
	way := func(context.Context, *ferrule.Call) (*ferrule.Result, error) { return &ferrule.Result{}, nil }
	for i := range devices {
		dev := someDevice(i, of[i%kinds], state)
		if err := g.Devices.Keep(dev, laid[i%kinds]); err != nil {
			t.Fatal(err)
		}
		g.Fleet.Put(dev, laid[i%kinds], way)
	}
}

func someDevice(i int, kind ferrule.Kind, state ferrule.State) *ferrule.Device {
	return &ferrule.Device{
		ID: deviceID(i), Address: fmt.Sprintf("usb:303a:1001:34851871%06X", i), Transport: "serial", Protocol: "mcpu",
		Kind: kind, State: state, Since: time.Now(), Trust: ferrule.TrustAdopted,
	}
}

func deviceID(i int) string { return fmt.Sprintf("sensor-%06d", i) }

// someManifest returns the manifest of a board with eight tools.
func someManifest(number int) *ferrule.Manifest {
	m := &ferrule.Manifest{Model: fmt.Sprintf("sensor-%d", number), Version: "1.4.2", Platform: "esp32"}
	for i := range 8 {
		m.Tools = append(m.Tools, ferrule.Tool{
			Name: fmt.Sprintf("read_value_%d", i), Text: fmt.Sprintf("Reads value %d of this sensor, in the unit that it was set to.", i), Effect: ferrule.Reads,
			Input: json.RawMessage(`{"type":"object","properties":{"unit":{"type":"string","enum":["raw","si"]},"samples":{"type":"integer","minimum":1,"maximum":64}},"additionalProperties":false}`),
		})
	}
	return m
}

// complete checks the number of records.
func (r *registrySide) complete(t *testing.T, want int) {
	t.Helper()
	js := clustertest.Connect(t, r.servers.URLs())
	var have uint64
	for shard := range registryShards {
		s, err := js.Stream(t.Context(), fmt.Sprintf("KV_ferrule-devices-%d", shard))
		if err != nil {
			t.Fatal(err)
		}
		have += s.CachedInfo().State.Msgs
	}
	if int(have) != want {
		t.Errorf("%d records, want %d", have, want)
	}
}

// quiet waits until the events of the tenant's devices are published, which is not
// measured.
func (r *registrySide) quiet(t *testing.T, events uint64) {
	t.Helper()
	js := clustertest.Connect(t, r.servers.URLs())
	wait.For(t, "all events are published", func() bool {
		s, err := js.Stream(t.Context(), "ferrule-events")
		return err == nil && s.CachedInfo().State.Msgs >= events
	})
}

// freshNode measures the time until a new node knows all devices of its tenant.
func (r *registrySide) freshNode(t *testing.T) time.Duration {
	t.Helper()
	runtime.GC() // free what came before
	start := time.Now()
	g, end := r.node(t, "tenant")
	defer end()
	stop := runPart(t, func(ctx context.Context) error { return g.Run(ctx) })
	defer stop()
	wait.For(t, "all devices of the tenant are known", func() bool { return g.Catalog.Counts().Online == tenantDevices })
	last := deviceID(tenantDevices - 1)
	if dev, m, ok := g.Fleet.Lookup(last); !ok || m.Tool("read_value_7") == nil || dev.State != ferrule.StateOnline {
		t.Fatalf("%s: %v, %t", last, dev, ok)
	}
	if offers, _ := g.Catalog.List(); len(offers) == 0 {
		t.Fatal("nothing is listed")
	}
	return time.Since(start)
}

// weigh prints the memory of a node per own device, per device of another node, and per
// Kind.
func (r *registrySide) weigh(t *testing.T, devices int) {
	t.Helper()
	before := residentSet(t)
	start := time.Now()
	r.holder(t, "weighed", devices, 1)
	t.Logf("%d devices that come online at once are registered in %v, while their events are published", devices, time.Since(start).Round(time.Millisecond))
	own := residentSet(t)
	r.viewer(t, "weighed", devices)
	view := residentSet(t)
	t.Logf("memory of a node: %d bytes of RSS for a device of its own, %d for one that is in view", (own-before)/devices, (view-own)/devices)
	const kinds = 1000
	r.holder(t, "kinds", kinds, kinds)
	before = residentSet(t)
	r.viewer(t, "kinds", kinds)
	t.Logf("and %d for a device in view that is the only one of its Kind, of eight tools", (residentSet(t)-before)/kinds)
}

// holder runs a node with devices that are online.
func (r *registrySide) holder(t *testing.T, tenant string, devices, kinds int) {
	t.Helper()
	g, _ := r.node(t, tenant)
	populate(t, g, devices, kinds, ferrule.StateOnline)
	runPart(t, g.Cluster.Run)
	wait.Within(t, 5*time.Minute, "all records are in the registry", func() bool { return g.Cluster.State().Waiting == 0 })
}

// viewer runs a node that sees the devices of a tenant.
func (r *registrySide) viewer(t *testing.T, tenant string, devices int) {
	t.Helper()
	g, _ := r.node(t, tenant)
	runPart(t, g.Cluster.Run)
	wait.For(t, "all are in view", func() bool { return g.Catalog.Counts().Online == devices })
}

// bareRecord is a record as every reader has to decode it.
type bareRecord struct {
	Address, Name, Dialect, Node, Kind, State string
	Epoch, Since                              int64
}

// bareSide is plain NATS: buckets with the same configuration, watched in the same way,
// with records and manifests of the same size. Keys are created, so that none is
// overwritten, as fast as the library can.
type bareSide struct {
	servers          *natscluster.Cluster
	record, manifest []byte
}

func newBareSide(t *testing.T) *bareSide {
	b := &bareSide{servers: natscluster.Start(t, natscluster.Options{})}
	js := clustertest.Connect(t, b.servers.URLs())
	for _, name := range b.buckets() {
		wait.For(t, "a bucket is created", func() bool { // new clusters may refuse at first
			_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: name, History: 1, Storage: jetstream.FileStorage, Replicas: 3})
			return err == nil
		})
	}
	return b
}

// buckets names the buckets: the first is for manifests.
func (b *bareSide) buckets() []string {
	names := []string{"bare-kinds"}
	for shard := range registryShards {
		names = append(names, fmt.Sprintf("bare-devices-%d", shard))
	}
	return names
}

// like takes a record and a manifest of the registry as a pattern.
func (b *bareSide) like(t *testing.T, r *registrySide, tenant string) {
	t.Helper()
	js := clustertest.Connect(t, r.servers.URLs())
	first := func(bucket string) []byte {
		kv, err := js.KeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		watcher, err := kv.Watch(t.Context(), tenant+".*")
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Stop()
		return bytes.Clone((<-watcher.Updates()).Value())
	}
	b.record, b.manifest = first("ferrule-devices-0"), first("ferrule-kinds")
}

// open connects and opens all buckets.
func (b *bareSide) open(t *testing.T) (*nats.Conn, jetstream.JetStream, []jetstream.KeyValue) {
	t.Helper()
	conn, err := nats.Connect(b.servers.URLs())
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		t.Fatal(err)
	}
	all := make([]jetstream.KeyValue, len(b.buckets()))
	sideBySide(t, len(all), func(i int) error {
		kv, err := js.KeyValue(t.Context(), b.buckets()[i])
		all[i] = kv
		return err
	})
	return conn, js, all
}

// sideBySide does n things at the same time.
func sideBySide(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- do(i) }()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// watch watches the devices of a tenant in all shards until stop is called.
func (b *bareSide) watch(t *testing.T, shards []jetstream.KeyValue, tenant string, told func(jetstream.KeyValueEntry)) (stop func()) {
	t.Helper()
	watchers := make([]jetstream.KeyWatcher, len(shards))
	sideBySide(t, len(shards), func(i int) error {
		watcher, err := shards[i].Watch(t.Context(), tenant+".*")
		if err != nil {
			return err
		}
		watchers[i] = watcher
		go func() {
			for e := range watcher.Updates() {
				if e != nil {
					told(e)
				}
			}
		}()
		return nil
	})
	return func() {
		for _, w := range watchers {
			w.Stop()
		}
	}
}

// load lets a node register devices.
func (b *bareSide) load(t *testing.T, tenant string, devices, kinds int, create bool) time.Duration {
	t.Helper()
	start := time.Now()
	conn, js, all := b.open(t)
	defer conn.Close()
	var told atomic.Int64
	defer b.watch(t, all[1:], tenant, func(jetstream.KeyValueEntry) { told.Add(1) })()
	options := []jetstream.PublishOpt{jetstream.WithStallWait(time.Minute)}
	if create {
		options = append(options, jetstream.WithExpectLastSequencePerSubject(0))
	}
	publish := func(bucket, key string, value []byte) {
		if _, err := js.PublishMsgAsync(&nats.Msg{Subject: "$KV." + bucket + "." + tenant + "." + key, Data: value}, options...); err != nil {
			t.Fatal(err)
		}
	}
	for k := range kinds {
		publish("bare-kinds", fmt.Sprintf("%064d", k), b.manifest)
	}
	for _, i := range rand.Perm(devices) { // in random order
		publish(fmt.Sprintf("bare-devices-%d", i%registryShards), deviceID(i), b.record)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(5 * time.Minute):
		t.Fatal("not all is written")
	}
	took := time.Since(start)
	wait.For(t, "the watches have all records", func() bool { return int(told.Load()) == devices })
	return took
}

// blind prints the cost of not overwriting keys.
func (b *bareSide) blind(t *testing.T, each int) {
	t.Helper()
	var created, put []time.Duration
	for i := range registryRounds {
		created = append(created, b.load(t, fmt.Sprintf("created%d", i), each, each/perKind, true))
		put = append(put, b.load(t, fmt.Sprintf("put%d", i), each, each/perKind, false))
	}
	t.Logf("keys that are created, on bare KV, take %.2f times as long as those that are just put", float64(median(created))/float64(median(put)))
}

// freshNode measures the time until a new node knows all devices of its tenant.
func (b *bareSide) freshNode(t *testing.T, read bool) time.Duration {
	t.Helper()
	runtime.GC()
	start := time.Now()
	conn, _, all := b.open(t)
	defer conn.Close()
	var mu sync.Mutex
	records := make(map[string]*bareRecord)
	defer b.watch(t, all[1:], "tenant", func(e jetstream.KeyValueEntry) {
		record := &bareRecord{}
		if read && json.Unmarshal(e.Value(), record) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		records[e.Key()] = record
	})()
	wait.For(t, "all records are read", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(records) == tenantDevices
	})
	sideBySide(t, tenantKinds, func(k int) error {
		e, err := all[0].Get(t.Context(), fmt.Sprintf("tenant.%064d", k))
		if err != nil || !read {
			return err
		}
		r, err := gzip.NewReader(bytes.NewReader(e.Value()))
		if err != nil {
			return err
		}
		return json.NewDecoder(r).Decode(&ferrule.Manifest{})
	})
	return time.Since(start)
}
