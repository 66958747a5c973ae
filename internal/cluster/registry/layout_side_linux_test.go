//go:build bench

package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/concurrent"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

const (
	layoutShards = 16
	perClaimPage = 64      // devices of a page of claims, on average
	batchBytes   = 1 << 20 // of large values in flight, per writer
)

// layoutSide is nodes that store their devices in one layout.
type layoutSide struct {
	recordLayout
	t       *testing.T
	servers *natscluster.Cluster
	tenant  string
	nodes   []*layoutNode
	devices []layoutDevice

	writes, bytes, conflicts atomic.Int64

	mu         sync.Mutex
	claimPages []claimPage // as the nodes know them
}

// layoutNode is a node that writes records.
type layoutNode struct {
	name  string
	conn  *nats.Conn
	js    jetstream.JetStream
	pages []*devicePage
}

// layoutDevice is a device, and where it is stored.
type layoutDevice struct {
	id       string
	record   []byte
	revision uint64 // of the key with its record or its claim
	epoch    uint64
	node     int
	page     *devicePage
}

// devicePage is a key with the records of several devices, which one node writes.
type devicePage struct {
	key     string
	node    int
	devices []int
}

// claimPage is a key that says which node holds which device.
type claimPage struct {
	text     []byte // a line per device: ID, node and epoch
	revision uint64
}

// newLayoutSide creates the buckets, with the settings of the registry.
func newLayoutSide(t *testing.T, l recordLayout, servers *natscluster.Cluster, replicas int) *layoutSide {
	s := openLayoutSide(t, l, servers)
	for shard := range layoutShards {
		cfg := jetstream.KeyValueConfig{Bucket: engine.DevicesBucket(shard), History: 1, Storage: jetstream.FileStorage, Replicas: replicas}
		if l.claim == shortClaims {
			cfg.LimitMarkerTTL = time.Second
		}
		wait.For(t, "a bucket is created", func() bool { // new clusters may refuse at first
			_, err := s.nodes[0].js.CreateKeyValue(t.Context(), cfg)
			return err == nil
		})
	}
	return s
}

// openLayoutSide connects the nodes.
func openLayoutSide(t *testing.T, l recordLayout, servers *natscluster.Cluster) *layoutSide {
	s := &layoutSide{recordLayout: l, t: t, servers: servers, tenant: "acme"}
	for i := range *layoutNodes {
		conn, js := s.connect()
		s.nodes = append(s.nodes, &layoutNode{name: fmt.Sprintf("node-%d", i), conn: conn, js: js})
	}
	t.Cleanup(s.close)
	return s
}

func (s *layoutSide) connect() (*nats.Conn, jetstream.JetStream) {
	s.t.Helper()
	conn, err := nats.Connect(s.servers.URLs())
	if err != nil {
		s.t.Fatal(err)
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(engine.MaxPending))
	if err != nil {
		s.t.Fatal(err)
	}
	return conn, js
}

func (s *layoutSide) close() {
	for _, n := range s.nodes {
		n.conn.Close()
	}
}

// deviceRecord returns a record of the size that TestRatioRegistry measures.
func deviceRecord(i, node int, epoch uint64) []byte {
	r := recordOf(&ferrule.Device{
		Address: fmt.Sprintf("usb:303a:1001:3485%06X", i), Transport: "serial", Protocol: "mcpu", Node: fmt.Sprintf("node-%d", node),
		Kind: "cb80d5cc8edddbc90f8b2000a71eb73c321bb340a27432434e19b109bfefd752", State: ferrule.StateOffline, Since: time.Now(), Trust: ferrule.TrustAdopted,
	}, epoch)
	data, err := json.Marshal(&r)
	if err != nil {
		panic(err)
	}
	return data
}

// addDevices makes devices, and assigns them to nodes and pages.
func (s *layoutSide) addDevices(count int) {
	s.devices = make([]layoutDevice, count)
	for i := range s.devices {
		node := i * *layoutNodes / count
		s.devices[i] = layoutDevice{id: fmt.Sprintf("sensor-%06d", i), record: deviceRecord(i, node, 1), epoch: 1, node: node}
		s.place(i)
	}
	s.claimPages = make([]claimPage, max(count/perClaimPage, 1))
}

// place puts a device into the last page of its node.
func (s *layoutSide) place(i int) {
	if s.page == 0 {
		return
	}
	d := &s.devices[i]
	n := s.nodes[d.node]
	if len(n.pages) == 0 || (len(n.pages[len(n.pages)-1].devices)+1)*len(d.line()) > s.page {
		n.pages = append(n.pages, &devicePage{key: fmt.Sprintf("page.%s.%d", n.name, len(n.pages)), node: d.node})
	}
	d.page = n.pages[len(n.pages)-1]
	d.page.devices = append(d.page.devices, i)
}

// line returns a device's part of a page.
func (d *layoutDevice) line() []byte {
	return slices.Concat([]byte(d.id), []byte(" "), d.record, []byte("\n"))
}

// layoutWrite is one write of a node.
type layoutWrite struct {
	key      string
	data     []byte
	revision uint64
	checked  bool // fail unless the key has the revision
	remove   bool
}

// put writes as a node does: several batches in flight. It returns the new revisions, 0
// for a key that another node changed first.
func (s *layoutSide) put(n *layoutNode, writes []layoutWrite) []uint64 {
	revisions := make([]uint64, len(writes))
	slots, errs := make(chan struct{}, writers), make(chan error, len(writes))
	var all sync.WaitGroup
	for from := 0; from < len(writes); {
		to, size := from, 0
		for to < len(writes) && to-from < writeBatch && size < batchBytes {
			size += len(writes[to].data)
			to++
		}
		batch, results := writes[from:to], revisions[from:to]
		from = to
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := s.putBatch(n, batch, results); err != nil {
				errs <- err
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		s.t.Errorf("writing: %v", err)
	default:
	}
	return revisions
}

func (s *layoutSide) putBatch(n *layoutNode, batch []layoutWrite, revisions []uint64) error {
	futures := make([]jetstream.PubAckFuture, len(batch))
	for i, w := range batch {
		msg := nats.NewMsg(s.subject(w.key))
		msg.Data = w.data
		options := []jetstream.PublishOpt{jetstream.WithStallWait(time.Minute)}
		if w.checked {
			options = append(options, jetstream.WithExpectLastSequencePerSubject(w.revision))
		}
		if w.remove {
			msg.Header.Set("KV-Operation", "PURGE")
			msg.Header.Set("Nats-Rollup", "sub")
			options = append(options, jetstream.WithMsgTTL(time.Second)) // else the mark of the deletion stays
		}
		var err error
		if futures[i], err = n.js.PublishMsgAsync(msg, options...); err != nil {
			return err
		}
		s.writes.Add(1)
		s.bytes.Add(int64(msg.Size()))
	}
	for i, future := range futures {
		select {
		case ack := <-future.Ok():
			revisions[i] = ack.Sequence
		case err := <-future.Err():
			if !errors.Is(engine.AsStale(err), engine.ErrStale) {
				return err
			}
		case <-time.After(time.Minute):
			return errors.New("a write was not acknowledged")
		}
	}
	return nil
}

func (s *layoutSide) subject(key string) string {
	return "$KV." + s.bucket(key) + "." + s.tenant + "." + key
}

func (s *layoutSide) bucket(key string) string {
	return engine.DevicesBucket(shardOf(s.tenant+"."+key, layoutShards))
}

// cost measures a function.
func (s *layoutSide) cost(do func()) cost {
	writes, bytes, conflicts, start := s.writes.Load(), s.bytes.Load(), s.conflicts.Load(), time.Now()
	do()
	return cost{time.Since(start), int(s.writes.Load() - writes), int(s.bytes.Load() - bytes), int(s.conflicts.Load() - conflicts)}
}

// load has a node register all its devices, in random order.
func (s *layoutSide) load(node int) time.Duration {
	var own []int
	for _, i := range rand.Perm(len(s.devices)) {
		if s.devices[i].node == node {
			own = append(own, i)
		}
	}
	start := time.Now()
	if s.claim == pagedClaims {
		s.readClaims()
	}
	s.take(node, own, s.nodes[node].pages)
	return time.Since(start)
}

// take has a node claim devices and write them.
func (s *layoutSide) take(node int, devices []int, pages []*devicePage) {
	n := s.nodes[node]
	switch {
	case s.page == 0:
		s.putEach(n, devices, "", func(d *layoutDevice) []byte { return d.record })
	case s.claim == shortClaims:
		for _, i := range devices {
			s.devices[i].revision = 0 // an earlier claim was deleted
		}
		s.putEach(n, devices, "claim.", func(*layoutDevice) []byte { return []byte(n.name) })
	case s.claim == lastingClaims:
		s.putEach(n, devices, "claim.", func(d *layoutDevice) []byte { return fmt.Appendf(nil, "%s %d", n.name, d.epoch) })
	case s.claim == pagedClaims:
		s.putClaimPages(n, devices)
	}
	s.putPages(n, pages)
	if s.claim == shortClaims {
		var writes []layoutWrite
		for _, i := range devices {
			writes = append(writes, layoutWrite{key: "claim." + s.devices[i].id, remove: true})
		}
		s.put(n, writes)
	}
}

// putEach writes a key for each device, by compare-and-set.
func (s *layoutSide) putEach(n *layoutNode, devices []int, prefix string, data func(*layoutDevice) []byte) {
	writes := make([]layoutWrite, len(devices))
	for k, i := range devices {
		d := &s.devices[i]
		writes[k] = layoutWrite{key: prefix + d.id, data: data(d), revision: d.revision, checked: true}
	}
	for k, revision := range s.put(n, writes) {
		if revision == 0 {
			s.t.Errorf("%s is taken", writes[k].key)
		}
		s.devices[devices[k]].revision = revision
	}
}

// putPages writes pages of a node. No other node writes them.
func (s *layoutSide) putPages(n *layoutNode, pages []*devicePage) {
	writes := make([]layoutWrite, len(pages))
	for k, p := range pages {
		var text bytes.Buffer
		for _, i := range p.devices {
			text.Write(s.devices[i].line())
		}
		writes[k] = layoutWrite{key: p.key, data: text.Bytes()}
	}
	s.put(n, writes)
}

// putClaimPages takes devices in the pages of claims, which other nodes write too.
func (s *layoutSide) putClaimPages(n *layoutNode, devices []int) {
	claimed := make(map[int][]int)
	for _, i := range devices {
		page := shardOf(s.devices[i].id, len(s.claimPages))
		claimed[page] = append(claimed[page], i)
	}
	for len(claimed) > 0 {
		var writes []layoutWrite
		var pages []int
		s.mu.Lock()
		for page, devices := range claimed {
			now := s.claimPages[page]
			text := now.text
			for _, i := range devices {
				text = setClaim(text, &s.devices[i], n.name)
			}
			writes, pages = append(writes, layoutWrite{key: fmt.Sprintf("claim.%d", page), data: text, revision: now.revision, checked: true}), append(pages, page)
		}
		s.mu.Unlock()
		var stale []int
		for k, revision := range s.put(n, writes) {
			if revision == 0 {
				stale = append(stale, pages[k])
				continue
			}
			delete(claimed, pages[k])
			s.know(pages[k], claimPage{writes[k].data, revision})
		}
		s.conflicts.Add(int64(len(stale)))
		s.readClaimPages(n, stale)
	}
}

// setClaim returns a page of claims in which a node has taken a device.
func setClaim(page []byte, d *layoutDevice, node string) []byte {
	text := make([]byte, 0, len(page)+40)
	for line := range bytes.Lines(page) {
		if !bytes.HasPrefix(line, []byte(d.id+" ")) {
			text = append(text, line...)
		}
	}
	return fmt.Appendf(text, "%s %s %d\n", d.id, node, d.epoch)
}

// know remembers a page of claims, unless a newer one is known.
func (s *layoutSide) know(page int, now claimPage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.revision > s.claimPages[page].revision {
		s.claimPages[page] = now
	}
}

// readClaimPages reads some pages of claims again.
func (s *layoutSide) readClaimPages(n *layoutNode, pages []int) {
	slots := make(chan struct{}, 64)
	var all sync.WaitGroup
	for _, page := range pages {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			key := fmt.Sprintf("claim.%d", page)
			msg, err := n.conn.Request("$JS.API.DIRECT.GET.KV_"+s.bucket(key)+"."+s.subject(key), nil, time.Minute)
			if err != nil {
				s.t.Error(err)
				return
			}
			revision, _ := strconv.ParseUint(msg.Header.Get("Nats-Sequence"), 10, 64)
			s.know(page, claimPage{msg.Data, revision})
		})
	}
	all.Wait()
}

// readClaims reads all pages of claims, as a node does that starts.
func (s *layoutSide) readClaims() {
	s.claimPages = make([]claimPage, len(s.claimPages))
	s.watch("claim.*", func(e jetstream.KeyValueEntry) {
		var page int
		if _, err := fmt.Sscanf(strings.TrimPrefix(e.Key(), s.tenant+"."), "claim.%d", &page); err != nil {
			s.t.Error(err)
			return
		}
		s.know(page, claimPage{e.Value(), e.Revision()})
	})()
}

// change has nodes write a new state of devices that they hold.
func (s *layoutSide) change(devices []int) {
	dirty := make(dirtyPages)
	held := make(map[int][]int)
	for _, i := range devices {
		d := &s.devices[i]
		d.record = deviceRecord(i, d.node, d.epoch)
		dirty.add(d.page)
		held[d.node] = append(held[d.node], i)
	}
	s.eachNode(func(node int) {
		if s.page == 0 {
			s.take(node, held[node], nil)
			return
		}
		s.putPages(s.nodes[node], dirty.of(node))
	})
}

// move has devices connect to other nodes. The nodes that held them write that they do
// no longer.
func (s *layoutSide) move(devices []int) { s.reconnect(devices, -1) }

// fail has the devices of a node connect to others. The node itself writes nothing.
func (s *layoutSide) fail(node int) {
	var devices []int
	for i := range s.devices {
		if s.devices[i].node == node {
			devices = append(devices, i)
		}
	}
	s.reconnect(devices, node)
}

func (s *layoutSide) reconnect(devices []int, failed int) {
	dirty := make(dirtyPages)
	taken := make(map[int][]int)
	for _, i := range devices {
		d := &s.devices[i]
		if p := d.page; p != nil && d.node != failed {
			p.devices = slices.DeleteFunc(p.devices, func(k int) bool { return k == i })
			dirty.add(p)
		}
		for from := d.node; d.node == from || d.node == failed; {
			d.node = rand.IntN(*layoutNodes)
		}
		d.epoch++
		d.record = deviceRecord(i, d.node, d.epoch)
		s.place(i)
		dirty.add(d.page)
		taken[d.node] = append(taken[d.node], i)
	}
	s.eachNode(func(node int) { s.take(node, taken[node], dirty.of(node)) })
}

// dirtyPages are pages that must be written.
type dirtyPages map[*devicePage]bool

func (d dirtyPages) add(p *devicePage) {
	if p != nil {
		d[p] = true
	}
}

// of returns the pages of a node.
func (d dirtyPages) of(node int) (pages []*devicePage) {
	for p := range d {
		if p.node == node {
			pages = append(pages, p)
		}
	}
	return pages
}

// eachNode calls a function for every node at the same time.
func (s *layoutSide) eachNode(do func(node int)) {
	var all sync.WaitGroup
	for node := range s.nodes {
		all.Go(func() { do(node) })
	}
	all.Wait()
}

// filter returns the keys that have records.
func (s *layoutSide) filter() string {
	if s.page == 0 {
		return "*"
	}
	return "page.>"
}

// watch calls received with all keys that match. The result waits until all that exist
// were reported, and ends the watch.
func (s *layoutSide) watch(filter string, received func(jetstream.KeyValueEntry)) (finish func()) {
	s.t.Helper()
	conn, js := s.connect()
	ctx, cancel := context.WithCancel(s.t.Context())
	synced := make(chan struct{}, layoutShards)
	var all []func() error
	for shard := range layoutShards {
		all = append(all, func() error {
			kv, err := engine.Retry(ctx, func(ctx context.Context) (jetstream.KeyValue, error) {
				return js.KeyValue(ctx, engine.DevicesBucket(shard))
			})
			if err != nil {
				return err
			}
			watcher, err := engine.Watch(ctx, kv, s.tenant+"."+filter)
			if err != nil {
				return err
			}
			go follow(ctx, watcher, func(e jetstream.KeyValueEntry) {
				if e == nil {
					synced <- struct{}{}
				} else {
					received(e)
				}
			})
			return nil
		})
	}
	if err := concurrent.All(all...); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		defer conn.Close()
		defer cancel()
		for range layoutShards {
			select {
			case <-synced:
			case <-time.After(5 * time.Minute):
				s.t.Error("not everything was read")
			}
		}
	}
}

// watchAll watches all records, as every node does. Seen waits for a number of them.
func (s *layoutSide) watchAll() (stop func(), seen func(devices int)) {
	var devices atomic.Int64
	stop = s.watch(s.filter(), func(e jetstream.KeyValueEntry) {
		if s.page == 0 {
			devices.Add(1)
		} else {
			devices.Add(int64(bytes.Count(e.Value(), []byte("\n"))))
		}
	})
	return stop, func(want int) {
		s.t.Helper()
		wait.For(s.t, "the watch has all devices", func() bool { return int(devices.Load()) >= want })
	}
}

// readAll reads and parses all records, as a new node does, and checks their number.
func (s *layoutSide) readAll() time.Duration {
	s.t.Helper()
	start := time.Now()
	var mu sync.Mutex
	view := make(map[string]entry)
	add := func(id string, data []byte, revision uint64) {
		e := entryIn(id, data, revision)
		mu.Lock()
		defer mu.Unlock()
		if now := view[id]; epochOf(e.device) >= epochOf(now.device) { // a failed node's page is old
			view[id] = e
		}
	}
	s.watch(s.filter(), func(e jetstream.KeyValueEntry) {
		if s.page == 0 {
			add(strings.TrimPrefix(e.Key(), s.tenant+"."), e.Value(), e.Revision())
			return
		}
		for line := range bytes.Lines(e.Value()) {
			id, record, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
			add(string(id), record, e.Revision())
		}
	})()
	took := time.Since(start)
	mu.Lock()
	defer mu.Unlock()
	for i := range s.devices {
		d := &s.devices[i]
		if got := view[d.id].device; got == nil || got.Epoch != d.epoch || got.Node != s.nodes[d.node].name {
			s.t.Fatalf("%s: read %+v, want epoch %d at %s", d.id, got, d.epoch, s.nodes[d.node].name)
		}
	}
	return took
}
