package natscluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// moment is the wait for what must not happen.
const moment = 250 * time.Millisecond

var buckets = func() []string {
	all := []string{"ferrule-nodes", "ferrule-kinds", "ferrule-shared", "ferrule-tasks"}
	for i := range 16 {
		all = append(all, fmt.Sprintf("ferrule-devices-%d", i))
	}
	return all
}()

// client is a connection of a user.
type client struct {
	*nats.Conn
	js  jetstream.JetStream
	api string // prefix of JetStream subjects

	mu      sync.Mutex
	refused []string // permission errors of the server
}

// connect connects as a node of a tenant does.
func connect(t *testing.T, url, tenant, domain string, options ...nats.Option) *client {
	t.Helper()
	c := &client{api: "$JS.API."}
	options = append(options, nats.Timeout(wait.Ample), nats.CustomInboxPrefix("ferrule."+tenant+".inbox.test"), nats.ErrorHandler(c.onError))
	conn, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	c.Conn = conn
	if domain == "" {
		c.js, err = jetstream.New(conn)
	} else {
		c.api = "$JS." + domain + ".API."
		c.js, err = jetstream.NewWithDomain(conn, domain)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *client) onError(_ *nats.Conn, _ *nats.Subscription, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, nats.ErrPermissionViolation) {
		c.refused = append(c.refused, err.Error())
	}
}

// violations returns the permission errors since the last call.
func (c *client) violations() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.refused
	c.refused = nil
	return all
}

// operate creates and fills the streams and buckets, as the operator of a tenant.
func operate(t *testing.T, url, tenant string) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	op := connect(t, url, "operator", "")
	for _, bucket := range buckets {
		// More replicas take longer, and do not affect permissions.
		if _, err := op.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucket, LimitMarkerTTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	for name, subject := range map[string]string{"ferrule-journal": "ferrule.*.journal.*.*", "ferrule-events": "ferrule.*.event.>", "ferrule-samples": "ferrule.*.sample.>"} {
		if _, err := op.js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{subject}, AllowDirect: true, Replicas: 3}); err != nil {
			t.Fatal(err)
		}
	}
	op.put(t, "ferrule-nodes", "layout", "16")
	for _, bucket := range buckets {
		op.put(t, bucket, tenant+".one", tenant+"'s own")
	}
	op.store(t, "ferrule."+tenant+".journal.n1.1", tenant+"'s own")
	op.store(t, "ferrule."+tenant+".event.n1.online", tenant+"'s own")
	op.store(t, "ferrule."+tenant+".sample.n1.pump.flow", tenant+"'s own")
	return op
}

func (c *client) put(t *testing.T, bucket, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	if _, err := c.bucket(t, bucket).Put(ctx, key, []byte(value)); err != nil {
		t.Errorf("putting %s into %s: %v", key, bucket, err)
	}
}

func (c *client) get(t *testing.T, bucket, key string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	entry, err := c.bucket(t, bucket).Get(ctx, key)
	if err != nil {
		t.Errorf("getting %s of %s: %v", key, bucket, err)
		return ""
	}
	return string(entry.Value())
}

func (c *client) bucket(t *testing.T, name string) jetstream.KeyValue {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	kv, err := c.js.KeyValue(ctx, name)
	if err != nil {
		t.Fatalf("bucket %s: %v", name, err)
	}
	return kv
}

// store publishes to a stream and waits for its acknowledgment.
func (c *client) store(t *testing.T, subject, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	if _, err := c.js.Publish(ctx, subject, []byte(text)); err != nil {
		t.Errorf("storing %s: %v", subject, err)
	}
}

// watch returns the existing keys that a watch of a bucket reports.
func (c *client) watch(t *testing.T, bucket, keys string) []string {
	t.Helper()
	w, err := c.bucket(t, bucket).Watch(t.Context(), keys)
	if err != nil {
		t.Errorf("watching %s of %s: %v", keys, bucket, err)
		return nil
	}
	defer w.Stop()
	var all []string
	for {
		select {
		case entry := <-w.Updates():
			if entry == nil {
				slices.Sort(all)
				return all
			}
			all = append(all, entry.Key())
		case <-time.After(wait.Ample):
			t.Errorf("watching %s of %s: only %d keys were reported", keys, bucket, len(all))
			return all
		}
	}
}

// read returns the subjects of the first messages of a stream.
func (c *client) read(t *testing.T, stream, filter string, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	consumer, err := c.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}})
	if err != nil {
		t.Errorf("reading %s: %v", stream, err)
		return nil
	}
	var all []string
	for {
		batch, err := consumer.Fetch(n-len(all), jetstream.FetchMaxWait(wait.Ample))
		if err != nil {
			t.Errorf("reading %s: %v", stream, err)
			return all
		}
		for m := range batch.Messages() {
			all = append(all, m.Subject())
		}
		// This server may not know a consumer yet that another server created.
		if err := batch.Error(); err == nil || !errors.Is(err, nats.ErrNoResponders) || ctx.Err() != nil {
			return all
		}
	}
}

// works does everything that a node of acme does.
func (c *client) works(t *testing.T, node string) {
	mine := "acme." + node
	for _, bucket := range buckets {
		c.put(t, bucket, mine, "here")
		if got := c.get(t, bucket, mine); got != "here" {
			t.Errorf("%s has %q", bucket, got)
		}
	}
	if got := c.watch(t, "ferrule-nodes", "acme.>"); !slices.Contains(got, mine) || !slices.Contains(got, "acme.one") {
		t.Errorf("the watch reports %q", got)
	}
	if got := c.get(t, "ferrule-nodes", "layout"); got != "16" {
		t.Errorf("the layout is %q", got)
	}
	if got := c.watch(t, "ferrule-nodes", "layout"); !slices.Equal(got, []string{"layout"}) {
		t.Errorf("the watch of the layout reports %q", got)
	}
	for stream, subject := range map[string]string{"ferrule-journal": "ferrule.acme.journal." + node, "ferrule-events": "ferrule.acme.event." + node, "ferrule-samples": "ferrule.acme.sample." + node + ".pump"} {
		c.store(t, subject+".1", "")
		c.store(t, subject+".2", "")
		if got := c.read(t, stream, subject+".*", 2); !slices.Equal(got, []string{subject + ".1", subject + ".2"}) {
			t.Errorf("%s has %q", stream, got)
		}
		if m, err := c.Request(c.api+"DIRECT.GET."+stream+"."+subject+".2", nil, wait.Ample); err != nil || m.Header.Get("Nats-Subject") != subject+".2" {
			t.Errorf("getting the last of %s: %v", stream, err)
		}
	}
	c.lease(t, mine+".lease")
	c.calls(t)
	if refused := c.violations(); refused != nil {
		t.Errorf("the server refused %q", refused)
	}
}

// lease renews a key with a time to live, which the library's Put cannot do.
func (c *client) lease(t *testing.T, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	revision, err := c.bucket(t, "ferrule-nodes").Create(ctx, key, nil, jetstream.KeyTTL(time.Minute))
	if err != nil {
		t.Errorf("taking a lease: %v", err)
	}
	m := nats.NewMsg(c.kvPrefix() + "$KV.ferrule-nodes." + key)
	if _, err := c.js.PublishMsg(ctx, m, jetstream.WithMsgTTL(time.Minute), jetstream.WithExpectLastSequencePerSubject(revision)); err != nil {
		t.Errorf("renewing a lease: %v", err)
	}
	if err := c.bucket(t, "ferrule-nodes").Delete(ctx, key); err != nil {
		t.Errorf("deleting a lease: %v", err)
	}
}

// kvPrefix returns the prefix of a key's subject if the API has a domain.
func (c *client) kvPrefix() string {
	if c.api == "$JS.API." {
		return ""
	}
	return c.api
}

// calls sends a request from node to node.
func (c *client) calls(t *testing.T) {
	t.Helper()
	sub, err := c.Subscribe("ferrule.acme.node.n2.call", func(m *nats.Msg) { m.Respond([]byte("done")) })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	m, err := c.Request("ferrule.acme.node.n2.call", nil, wait.Ample)
	if err != nil || string(m.Data) != "done" {
		t.Errorf("calling a node: %v", err)
	}
}

// attempt is a request that a tenant must not make. It must get no answer, or the expected
// error.
type attempt struct {
	what, subject, body string
	answer              string // part of the error that JetStream may answer with
}

func (c *client) attempts() []attempt {
	consumer := func(stream, filters string) string {
		return fmt.Sprintf(`{"stream_name":%q,"config":{"name":"x","deliver_policy":"all","ack_policy":"none","deliver_subject":"ferrule.acme.stolen",%s}}`, stream, filters)
	}
	const (
		theirs = "$KV.ferrule-nodes.globex."
		stream = "KV_ferrule-nodes"
	)
	return []attempt{
		{"get another's key", c.api + "DIRECT.GET." + stream + "." + theirs + "one", "", ""},
		{"get another's key by number", c.api + "DIRECT.GET." + stream, `{"seq":1}`, ""},
		{"get another's key by a name in the body", c.api + "DIRECT.GET." + stream, `{"last_by_subj":"` + theirs + `one"}`, ""},
		{"get another's key behind one's own", c.api + "DIRECT.GET." + stream + ".$KV.ferrule-nodes.acme.one", `{"last_by_subj":"` + theirs + `one"}`, "Bad Request"},
		{"get another's key from the leader", c.api + "STREAM.MSG.GET." + stream, `{"last_by_subj":"` + theirs + `one"}`, ""},
		{"get another's journal", c.api + "DIRECT.GET.ferrule-journal.ferrule.globex.journal.n1.1", "", ""},
		{"watch another's keys", c.api + "CONSUMER.CREATE." + stream + ".x." + theirs + ">", consumer(stream, `"filter_subject":"`+theirs+`>"`), ""},
		{"watch all keys", c.api + "CONSUMER.CREATE." + stream + ".x.$KV.ferrule-nodes.>", consumer(stream, `"filter_subject":"$KV.ferrule-nodes.>"`), ""},
		{"watch every tenant's keys", c.api + "CONSUMER.CREATE." + stream + ".x.$KV.ferrule-nodes.*.one", consumer(stream, `"filter_subject":"$KV.ferrule-nodes.*.one"`), ""},
		{"watch without a filter", c.api + "CONSUMER.CREATE." + stream + ".x", consumer(stream, `"filter_subject":""`), ""},
		{"watch without a name", c.api + "CONSUMER.CREATE." + stream, consumer(stream, `"filter_subject":""`), ""},
		{"watch with a durable name", c.api + "CONSUMER.DURABLE.CREATE." + stream + ".x", consumer(stream, `"filter_subject":""`), ""},
		{"watch with another filter in the body", c.api + "CONSUMER.CREATE." + stream + ".x.$KV.ferrule-nodes.acme.>", consumer(stream, `"filter_subject":"`+theirs+`>"`), "did not match"},
		{"watch with more filters in the body", c.api + "CONSUMER.CREATE." + stream + ".x.$KV.ferrule-nodes.acme.>", consumer(stream, `"filter_subjects":["`+theirs+`>"]`), "multiple subject filters"},
		{"read another's journal", c.api + "CONSUMER.CREATE.ferrule-journal.x.ferrule.globex.journal.>", consumer("ferrule-journal", `"filter_subject":"ferrule.globex.journal.>"`), ""},
		{"read another's events", c.api + "CONSUMER.CREATE.ferrule-events.x.ferrule.globex.event.>", consumer("ferrule-events", `"filter_subject":"ferrule.globex.event.>"`), ""},
		{"read another's readings", c.api + "CONSUMER.CREATE.ferrule-samples.x.ferrule.globex.sample.>", consumer("ferrule-samples", `"filter_subject":"ferrule.globex.sample.>"`), ""},
		{"get another's reading", c.api + "DIRECT.GET.ferrule-samples.ferrule.globex.sample.n1.pump.flow", "", ""},
		{"write another's readings", "ferrule.globex.sample.n1.pump.flow", "stolen", ""},
		{"write another's readings as a site", "ferrule.globex.sample.n1.pump.flow.site", "stolen", ""},
		{"put another's key", c.kvPrefix() + "$KV.ferrule-nodes.globex.one", "stolen", ""},
		{"put another's key without a domain", "$KV.ferrule-nodes.globex.one", "stolen", ""},
		{"put the layout", c.kvPrefix() + "$KV.ferrule-nodes.layout", "1", ""},
		{"write another's journal", "ferrule.globex.journal.n1.1", "stolen", ""},
		{"write another's events", "ferrule.globex.event.n1.online", "stolen", ""},
		{"call another's node", "ferrule.globex.node.n1.call", "stolen", ""},
		{"list streams", c.api + "STREAM.NAMES", "", ""},
		{"list consumers", c.api + "CONSUMER.NAMES." + stream, "", ""},
		{"create a stream", c.api + "STREAM.CREATE.mine", `{"name":"mine","subjects":["ferrule.acme.mine"]}`, ""},
		{"mirror another's stream", c.api + "STREAM.CREATE.mine", `{"name":"mine","mirror":{"name":"` + stream + `"}}`, ""},
		{"update a stream", c.api + "STREAM.UPDATE." + stream, `{"name":"` + stream + `","subjects":["$KV.ferrule-nodes.>"],"max_msgs_per_subject":1}`, ""},
		{"purge a stream", c.api + "STREAM.PURGE." + stream, "", ""},
		{"delete a message", c.api + "STREAM.MSG.DELETE." + stream, `{"seq":1}`, ""},
		{"delete a stream", c.api + "STREAM.DELETE." + stream, "", ""},
		{"copy a stream", c.api + "STREAM.SNAPSHOT." + stream, `{"deliver_subject":"ferrule.acme.stolen"}`, ""},
		{"have a leader step down", c.api + "STREAM.LEADER.STEPDOWN." + stream, "", ""},
	}
}

// cannot tries everything that acme must not do to globex, and checks the effect.
func (c *client) cannot(t *testing.T, op *client) {
	theirs, err := op.SubscribeSync("ferrule.globex.>")
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Unsubscribe()
	stolen, err := c.SubscribeSync("ferrule.acme.stolen")
	if err != nil {
		t.Fatal(err)
	}
	defer stolen.Unsubscribe()
	if err := errors.Join(op.Flush(), c.Flush()); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, a := range c.attempts() {
		all.Go(func() { c.try(t, a) })
	}
	all.Wait()
	if m, err := theirs.NextMsg(moment); err == nil {
		t.Errorf("globex received %s %s", m.Subject, m.Data)
	}
	if m, err := stolen.NextMsg(moment); err == nil {
		t.Errorf("acme received %s %s", m.Subject, m.Data)
	}
	unchanged(t, op)
	c.violations()
	c.cannotListen(t, op)
}

func (c *client) try(t *testing.T, a attempt) {
	m, err := c.Request(a.subject, []byte(a.body), moment)
	switch {
	case err != nil:
		if !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s: %v", a.what, err)
		}
	case a.answer == "" || !strings.Contains(string(m.Data)+fmt.Sprint(m.Header), a.answer):
		t.Errorf("%s: got the answer %v %s", a.what, m.Header, m.Data)
	}
}

// cannotListen subscribes to messages for others.
func (c *client) cannotListen(t *testing.T, op *client) {
	t.Helper()
	var subs []*nats.Subscription
	for _, subject := range []string{">", "ferrule.>", "ferrule.*.>", "ferrule.globex.>", "$KV.>", "$JS.>", "$JS.API.CONSUMER.CREATE.>", "_INBOX.>"} {
		sub, err := c.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	c.FlushTimeout(wait.Ample)
	for _, subject := range []string{"ferrule.globex.node.n1.call", "ferrule.globex.sample.n1.pump.flow"} {
		if err := op.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	op.put(t, "ferrule-nodes", "globex.two", "theirs")
	op.FlushTimeout(wait.Ample)
	time.Sleep(moment)
	for _, sub := range subs {
		if m, err := sub.NextMsg(time.Millisecond); err == nil && !strings.HasPrefix(m.Subject, "ferrule.acme.") {
			t.Errorf("the subscription to %s received %s", sub.Subject, m.Subject)
		}
		sub.Unsubscribe()
	}
}

// unchanged checks that the data of globex is unchanged.
func unchanged(t *testing.T, op *client) {
	t.Helper()
	if got := op.get(t, "ferrule-nodes", "globex.one"); got != "globex's own" {
		t.Errorf("globex's key is %q", got)
	}
	if got := op.get(t, "ferrule-nodes", "layout"); got != "16" {
		t.Errorf("the layout is %q", got)
	}
	if got := op.read(t, "ferrule-journal", "ferrule.globex.>", 1); !slices.Equal(got, []string{"ferrule.globex.journal.n1.1"}) {
		t.Errorf("globex's journal has %q", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	for name := range op.js.StreamNames(ctx).Name() {
		if !strings.Contains(name, "ferrule-") {
			t.Errorf("unexpected stream %s", name)
		}
	}
}

// TestTenants checks that with the configuration for operators a tenant can do what its
// nodes need, and nothing to another, as a client and through a leaf node.
func TestTenants(t *testing.T) {
	c := natscluster.Start(t, natscluster.Options{})
	operate(t, c.URLsAs("acme-operator"), "acme")
	op := operate(t, c.URLsAs("globex-operator"), "globex")
	for name, client := range map[string]*client{
		"inside": connect(t, c.URLsAs("acme"), "acme", ""),
		"domain": connect(t, c.URLsAs("acme"), "acme", "hub"),
		"leaf":   leaf(t, c.Servers[1].LeafURLAs("acme"), "acme"),
	} {
		t.Run(name, func(t *testing.T) {
			client.works(t, name)
			client.cannot(t, op)
		})
	}
	t.Run("many keys", func(t *testing.T) { connect(t, c.URLsAs("acme"), "acme", "").many(t) })
}

// leaf returns a client of a leaf server that is connected to the cluster.
func leaf(t *testing.T, url, tenant string) *client {
	t.Helper()
	site, err := server.NewServer(&server.Options{
		ServerName: "site", DontListen: true, NoSigs: true, NoLog: true,
		JetStream: true, JetStreamDomain: "site", StoreDir: t.TempDir(),
		LeafNode: server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{{URLs: server.RoutesFromStr(url)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	site.Start()
	t.Cleanup(func() { site.Shutdown(); site.WaitForShutdown() })
	wait.For(t, "the leaf reaches the cluster", func() bool { return site.NumLeafNodes() > 0 })
	return connect(t, "", tenant, "hub", nats.InProcessServer(site))
}

// many watches so many keys that the server uses flow control.
func (c *client) many(t *testing.T) {
	value := bytes.Repeat([]byte("x"), 1024)
	for i := range 20000 {
		if _, err := c.js.PublishAsync(fmt.Sprintf("$KV.ferrule-kinds.acme.many.%d", i), value, jetstream.WithStallWait(wait.Ample)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-c.js.PublishAsyncComplete():
	case <-time.After(wait.Ample):
		t.Fatal("publishing takes too long")
	}
	if got := c.watch(t, "ferrule-kinds", "acme.many.>"); len(got) != 20000 {
		t.Errorf("the watch reports %d keys, want 20000", len(got))
	}
	if refused := c.violations(); refused != nil {
		t.Errorf("the server refused %q", refused)
	}
}
