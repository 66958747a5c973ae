package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// oneDevice is a registry in which this node holds a robot under epoch 1.
type oneDevice struct{}

func (oneDevice) Peer(string) (string, time.Time) { return "", time.Time{} }

func (oneDevice) Held(id string, epoch uint64) (ferrule.Target, bool) {
	dev := &ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOnline}
	manifest := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "look", Effect: ferrule.Reads}}}
	return ferrule.Target{Device: dev, Manifest: manifest}, id == dev.ID && epoch == 1
}

func (oneDevice) Lookup(context.Context, string) *ferrule.Device { return nil }

// testSecret is what the nodes of the tests share.
var testSecret = []byte("the secret that all nodes of home share")

// testPeer is another node, which calls the tested one.
var testPeer = run{"b", "peer"}

// testReply returns the reply subject of a call of testPeer.
func testReply(number uint64) string {
	return "ferrule.home.reply.b." + newToken(testPeer.boot, number, "random")
}

func testCalls(serve ferrule.Handler) *Calls {
	return New(Options{
		Names: engine.Names{Tenant: "home", Node: "a"}, Boot: "boot", Devices: oneDevice{}, Secret: testSecret, Serve: serve, Refused: func(*ferrule.Call) {}, Log: slog.New(slog.DiscardHandler),
	})
}

// startEngine connects to a server of its own. It ends with the test.
func startEngine(t *testing.T) *engine.Engine {
	t.Helper()
	e, err := engine.Start(clustertest.OneServer(t), t.TempDir(), slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if err := e.WaitLinked(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestTwice checks that a call that arrives twice is served once, and that one that was
// asked about before it arrived is not served at all.
func TestTwice(t *testing.T) {
	e := startEngine(t)
	var served atomic.Int64
	c := testCalls(func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		served.Add(1)
		return &ferrule.Result{Value: json.RawMessage("1")}, nil
	})
	listener := c.Listener(e)
	if err := listener.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer listener.Stop()
	replies := make(chan *nats.Msg, 16)
	sub, err := e.Conn.ChanSubscribe("ferrule.home.reply.b.*", replies)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	data, err := json.Marshal(request{Call: ferrule.Call{Device: "robot", Tool: "look", Timeout: ferrule.Duration(time.Second)}, Kind: "k", Epoch: 1, Effect: ferrule.Changes})
	if err != nil {
		t.Fatal(err)
	}
	peer := newKeys(testSecret, testPeer)
	send := func(verb, reply string, data []byte) {
		data, err := peer.seal(run{"a", "boot"}, verb+" "+reply, data)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Conn.PublishRequest(c.names.Request("a", "boot", verb), reply, data); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want byte) {
		t.Helper()
		select {
		case msg := <-replies:
			data, err := peer.open(run{"a", "boot"}, msg.Subject, msg.Data)
			if err != nil || len(data) == 0 || data[0] != want {
				t.Errorf("got %q, %v, want %c", data, err, want)
			}
		case <-time.After(wait.Ample):
			t.Errorf("no reply, want %c", want)
		}
	}
	send(verbCall, testReply(1), data)
	expect(frameResult)
	send(verbCall, testReply(1), data)
	send(verbAsk, testReply(1), []byte{0})
	expect(frameResult) // to the ask; the call was not served again
	c.inbox.mu.Lock()
	c.inbox.forgotten = time.Time{} // as if the node had run for long
	c.inbox.mu.Unlock()
	send(verbAsk, testReply(2), []byte{0})
	expect(frameUnknown)
	send(verbCall, testReply(2), data)
	send(verbAsk, testReply(2), []byte{0})
	expect(frameUnknown)
	if n := served.Load(); n != 1 {
		t.Errorf("served %d times, want 1", n)
	}
}

// TestSplit reassembles a split frame from parts in any order, with duplicates.
func TestSplit(t *testing.T) {
	data := []byte("Rabcdefghijklmnopqrstuvwxyz")
	for limit := partHead + 1; limit < 40; limit++ {
		all := split(data, limit)
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		p := &pending{final: make(chan []byte, 1), frames: make(chan []byte, 1)}
		for _, f := range all {
			if len(f) > limit {
				t.Fatalf("a part has %d bytes, limit is %d", len(f), limit)
			}
			p.receive(f)
			if f[0] == framePart {
				p.receive(f)
			}
		}
		if got := string(<-p.final); got != string(data) {
			t.Errorf("limit %d: got %s", limit, got)
		}
	}
}

// TestInboxForgets checks that a call that may have been forgotten is not reported as
// never arrived.
func TestInboxForgets(t *testing.T) { synctest.Test(t, testInboxForgets) }

func testInboxForgets(t *testing.T) {
	i := newInbox()
	time.Sleep(2 * time.Millisecond)
	if got := i.ask(testPeer, 1, "before", time.Second); got[0][0] != frameForgot {
		t.Errorf("sent before this run: got %c", got[0][0])
	}
	if got := i.ask(testPeer, 2, "perhaps before", 0); got[0][0] != frameForgot {
		t.Errorf("perhaps sent before this run, if the ask was slow: got %c", got[0][0])
	}
	i.forgotten = i.forgotten.Add(-time.Minute)
	if got := i.ask(testPeer, 3, "new", 0); got[0][0] != frameUnknown {
		t.Errorf("sent just now: got %c", got[0][0])
	}
	s, err := i.enter(testPeer, 4, "first", nil)
	if err != nil {
		t.Fatal(err)
	}
	sent := time.Now()
	i.leave("first", s, [][]byte{make([]byte, keptBytes/2)})
	for n := range 3 {
		reply := fmt.Sprint(n)
		s, err := i.enter(testPeer, uint64(5+n), reply, nil)
		if err != nil {
			t.Fatal(err)
		}
		i.leave(reply, s, [][]byte{make([]byte, keptBytes/3)})
	}
	// The ask was on its way for longer than the call.
	if got := i.ask(testPeer, 4, "first", time.Since(sent)-time.Millisecond); got[0][0] != frameForgot {
		t.Errorf("forgotten: got %c", got[0][0])
	}
	if i.bytes > keptBytes {
		t.Errorf("%d bytes are kept, limit is %d", i.bytes, keptBytes)
	}
}

// TestLongCalls checks that the outcome of a long call is kept like any other.
func TestLongCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInbox()
		time.Sleep(time.Minute)
		s, err := i.enter(testPeer, 1, "long", nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * keepTime)
		i.leave("long", s, [][]byte{{frameResult}})
		time.Sleep(time.Second)
		if got := i.ask(testPeer, 1, "long", 2*keepTime); got[0][0] != frameResult {
			t.Errorf("just after its end: got %c", got[0][0])
		}
		time.Sleep(2 * keepTime)
		i.ask(testPeer, 2, "another", 0) // drops what is old
		if got := i.ask(testPeer, 1, "long", 4*keepTime); got[0][0] != frameForgot {
			t.Errorf("long after its end: got %c", got[0][0])
		}
	})
}

// TestLateUnknown checks that the caller believes that a call has not arrived only if it
// asked just now.
func TestLateUnknown(t *testing.T) { synctest.Test(t, testLateUnknown) }

func testLateUnknown(t *testing.T) {
	s := &sending{call: &ferrule.Call{Device: "robot", Tool: "move"}, node: "b", sent: time.Now().Add(-time.Minute)}
	if _, err := s.finish(t.Context(), unknown(time.Minute-slack/2)); !errors.Is(err, errMissed) {
		t.Errorf("asked just now: %v", err)
	}
	for _, data := range [][]byte{unknown(time.Minute - 2*slack), {frameUnknown}} {
		if _, err := s.finish(t.Context(), data); !ferrule.AsError(err).MayHaveRun() {
			t.Errorf("asked long ago: %v", err)
		}
	}
}

// TestWaits checks how long a caller waits for a holder that may not be there, and for the
// outcome of a call that has ended for the caller.
func TestWaits(t *testing.T) {
	e := startEngine(t)
	e.Conn.Close() // nothing is sent
	late := frame(frameError, ferrule.Errorf(ferrule.Busy, "it was waiting in the lane"))
	for name, test := range map[string]struct {
		nobody  bool          // NATS says at once that nobody received the call
		arrived time.Duration // when the holder says that it has the call
		ends    time.Duration // when the caller's deadline passes
		final   time.Duration // when the outcome arrives
		took    time.Duration
		code    ferrule.Code
	}{
		"no holder":           {nobody: true, took: askAfter},
		"doubted":             {nobody: true, arrived: askAfter / 2, final: time.Minute, took: time.Minute, code: ferrule.Busy},
		"confirmed too late":  {nobody: true, arrived: askAfter + 1, final: time.Minute, took: askAfter},
		"last words":          {ends: time.Second, final: time.Second + lastWords/2, took: time.Second + lastWords/2, code: ferrule.Busy},
		"last words too late": {ends: time.Second, final: time.Minute, took: time.Second + lastWords, code: ferrule.Unanswered},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			if test.ends > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), test.ends)
			}
			defer cancel()
			_, p := newOutbox("peer").open(run{"a", "boot"})
			if test.nobody {
				p.nobody <- struct{}{}
			}
			for after, data := range map[time.Duration][]byte{test.arrived: {frameRunning}, test.final: late} {
				if after > 0 {
					defer time.AfterFunc(after, func() { p.receive(data) }).Stop()
				}
			}
			s := &sending{
				engine: e, keys: newKeys(testSecret, testPeer), call: &ferrule.Call{Device: "robot", Tool: "look"},
				node: "a", boot: "boot", reply: testReply(1), pending: p, patience: patience{minConfirm, lastWords},
			}
			start := time.Now()
			_, err := s.wait(ctx)
			if took := time.Since(start); took != test.took || errors.Is(err, errNobody) != (test.code == "") || test.code != "" && ferrule.AsError(err).Code != test.code {
				t.Errorf("%s: %v after %v, want %q after %v", name, err, took, test.code, test.took)
			}
		})
	}
}

// TestLastWords checks that a call is cancelled at the holder when its caller is gone or its
// deadline passes, and that the caller gets the holder's outcome.
func TestLastWords(t *testing.T) {
	e := startEngine(t)
	began, ended := make(chan struct{}), make(chan error, 1)
	holder := testCalls(func(ctx context.Context, _ *ferrule.Call) (*ferrule.Result, error) {
		began <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled in the lane")
	})
	listener := holder.Listener(e)
	if err := listener.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer listener.Stop()
	sender := testSender(t, e)
	sender.lastWords = wait.Ample
	gone, leave := context.WithCancel(t.Context())
	passed := make(chan struct{})
	for _, test := range []struct {
		ctx context.Context
		end func()
	}{{gone, leave}, {expiring{t.Context(), passed}, func() { close(passed) }}} {
		go func() { <-began; test.end() }()
		_, err := sender.Call(test.ctx, testCall("look"))
		if e := ferrule.AsError(err); e.Code != ferrule.Cancelled || e.Message != "cancelled in the lane" || e.MayHaveRun() {
			t.Errorf("got %v", err)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	}
}

// TestSilentHolder checks that a call that gets no answer may have run.
func TestSilentHolder(t *testing.T) {
	e := startEngine(t)
	began, release := make(chan struct{}), make(chan struct{})
	holder := testCalls(func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		began <- struct{}{}
		<-release
		return nil, ferrule.Errorf(ferrule.Failed, "too late")
	})
	listener := holder.Listener(e)
	if err := listener.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer listener.Stop()
	defer close(release)
	sender := testSender(t, e)
	gone, leave := context.WithCancel(t.Context())
	passed := make(chan struct{})
	for _, test := range []struct {
		ctx  context.Context
		end  func()
		code ferrule.Code
	}{{gone, leave, ferrule.Cancelled}, {expiring{t.Context(), passed}, func() { close(passed) }, ferrule.Unanswered}} {
		go func() { <-began; test.end() }()
		_, err := sender.Call(test.ctx, testCall("look"))
		if e := ferrule.AsError(err); e.Code != test.code || !e.MayHaveRun() {
			t.Errorf("got %v, want %s", err, test.code)
		}
	}
}

// expiring is a context whose deadline passes when a channel is closed.
type expiring struct {
	context.Context
	passed chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.passed }

func (e expiring) Err() error {
	select {
	case <-e.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestValue checks that a result with only a value is sent as it is to a node that knows such
// frames, and that every other result arrives as it was.
func TestValue(t *testing.T) {
	value := json.RawMessage(`{ "on": [true, "<"] }`)
	others := 0 // fields that were tried besides the value
	for _, test := range []struct {
		knows  bool
		result ferrule.Result
		kind   byte
	}{
		{true, ferrule.Result{Value: value}, frameValue},
		{false, ferrule.Result{Value: value}, frameResult},
		{true, ferrule.Result{}, frameResult},
		{true, ferrule.Result{Value: value, Age: ferrule.Duration(time.Second)}, frameResult},
		{true, ferrule.Result{Value: value, Text: "a prompt"}, frameResult},
		{true, ferrule.Result{Value: value, Content: []ferrule.Content{{Type: ferrule.TextContent, Text: "on"}}}, frameResult},
		{true, ferrule.Result{Value: value, Job: &ferrule.Job{Handle: "7"}}, frameResult},
	} {
		set := len(unset(ferrule.Result{})) - len(unset(test.result))
		if others += set - min(len(test.result.Value), 1); test.kind == frameValue && set != 1 {
			t.Errorf("%+v has not only a value", test.result)
		}
		req := &request{Values: test.knows}
		data := req.resultFrame(&test.result)
		if data[0] != test.kind {
			t.Errorf("%+v has the frame %q, not %q", test.result, data[0], test.kind)
		}
		got, err := parseFinal(data[0], data[1:])
		if err != nil {
			t.Fatal(err)
		}
		if test.kind == frameValue && string(got.Value) != string(value) {
			t.Errorf("the value arrives as %s", got.Value)
		}
		sent, _ := json.Marshal(&test.result)
		arrived, _ := json.Marshal(got)
		if string(sent) != string(arrived) {
			t.Errorf("%s arrives as %s", sent, arrived)
		}
	}
	if all := len(unset(ferrule.Result{})) - 1; others != all {
		t.Errorf("%d of %d fields besides the value were tried", others, all)
	}
	if _, err := parseFinal(frameValue, []byte("{")); ferrule.AsError(err).Code != ferrule.Internal || !ferrule.AsError(err).MayHaveRun() {
		t.Errorf("a value that is not JSON: %v", err)
	}
}

// TestParseRequest checks that a request with all its fields is decoded as the standard library
// does it, and that one that is nested too deep is refused.
func TestParseRequest(t *testing.T) {
	req := &request{
		Call: ferrule.Call{
			ID: "01k8", Client: ferrule.Client{Name: "a \"program\"", Version: "1", Protocol: "2026-07-28"},
			Principal: ferrule.Principal{Role: ferrule.Agent, Name: "claude", Auth: "token", User: "maria", Scopes: ferrule.ScopeRead, Devices: "pump,*-lamp", Groups: "a,b", TokenID: "t1"},
			Device:    "pump", Operation: ferrule.Subscribe, Tool: "start\u00e9\n", Args: json.RawMessage(`{"litres":2e1,"why":["\u00e9",null]}`),
			Timeout: ferrule.Duration(30 * time.Second), Subscriber: "s", Session: "t", TakesJob: true, Askable: []ferrule.AskTarget{ferrule.User, ferrule.Page},
			Job:    &ferrule.Job{Handle: "7", Began: time.Date(2026, 11, 18, 2, 3, 4, 5, time.UTC), Epoch: 3, Message: "drilling", Every: ferrule.Duration(time.Second)},
			Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		},
		Kind: "k", Epoch: math.MaxUint64, Effect: ferrule.Endangers, Asks: true, Reports: true, Ask: true, Deadline: ferrule.Duration(time.Minute), Values: true,
	}
	for _, v := range []any{*req, req.Call, req.Call.Principal, req.Call.Client, *req.Call.Job} {
		for _, name := range unset(v) {
			t.Errorf("%s is not set", name)
		}
	}
	data, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	var want request
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	got, err := parseRequest(data)
	if err != nil || !reflect.DeepEqual(got, &want) {
		t.Errorf("got %+v, %v, not %+v", got, err, &want)
	}
	if again, err := json.Marshal(got); err != nil || string(again) != string(data) {
		t.Errorf("encoded again it is %s, %v, not %s", again, err, data)
	}
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	if _, err := parseRequest([]byte(`{"call":{"args":` + deep + `}}`)); err == nil {
		t.Error("arguments that are nested 20,000 deep were parsed")
	}
}

// unset returns the fields of a struct that are encoded as JSON and are zero.
func unset(v any) (names []string) {
	value := reflect.ValueOf(v)
	for field, is := range value.Fields() {
		if is.IsZero() && field.Tag.Get("json") != "-" {
			names = append(names, field.Name)
		}
	}
	return names
}

// FuzzReplies checks that any replies end at most one call, and that nothing blocks.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("R{}"), []byte("G{}"))
	f.Add([]byte("P\x00\x02abc"), []byte("P\x01\x02def"))
	f.Add([]byte("P\x00\x01E{}"), []byte("Q{}"))
	f.Add([]byte("U"), []byte("U\x02"))
	f.Add([]byte("V[1]"), []byte("V{"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		o := newOutbox("boot")
		token, p := o.open(testPeer)
		ours, theirs := newKeys(testSecret, run{"a", "boot"}), newKeys(testSecret, testPeer)
		for _, data := range [][]byte{one, two, one} {
			o.receive(ours, &nats.Msg{Subject: "x." + token, Data: data})
			sealed, err := theirs.seal(run{"a", "boot"}, "x."+token, data)
			if err != nil {
				t.Fatal(err)
			}
			o.receive(ours, &nats.Msg{Subject: "x." + token, Data: sealed})
		}
		s := &sending{call: &ferrule.Call{Device: "robot", Tool: "look"}, node: "b", pending: p}
		for len(p.frames) > 0 {
			s.handle(t.Context(), <-p.frames)
		}
		select {
		case data := <-p.final:
			if result, err := s.finish(t.Context(), data); (result == nil) == (err == nil) {
				t.Errorf("got %v, %v", result, err)
			}
		default:
		}
	})
}

// FuzzRequest checks that any request is answered, and that only a call of a held device
// is served.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"call":{"principal":{"role":"agent","name":"x"},"device":"robot","tool":"look"},"kind":"k","epoch":1,"effect":"reads"}`))
	f.Add([]byte(`{"call":{"device":"gateway","tool":"adopt_device"}}`))
	f.Add([]byte(`{"call":{"device":"gateway","tool":"adopt_device","args":{"a":[1,null]},"timeout":"1s"},"values":true}`))
	reached := false
	c := testCalls(func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		reached = true
		return &ferrule.Result{Value: json.RawMessage("1")}, nil
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		reached = false
		if final := c.serve(t.Context(), caller{run: testPeer}, data, &served{}); len(final) == 0 {
			t.Fatal("no answer")
		}
		req, err := parseRequest(data)
		if reached && (err != nil || req.Call.Device != ferrule.GatewayID && (req.Epoch != 1 || req.Kind != "k" || req.Call.Tool != "look")) {
			t.Errorf("served %q", data)
		}
		if err != nil {
			return
		}
		again, err := json.Marshal(req)
		if err != nil {
			return // the text of a duration or a scope that only decodes
		}
		var want request
		if err := json.Unmarshal(again, &want); err != nil {
			t.Fatal(err)
		}
		if got, err := parseRequest(again); err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("parsed %s as %+v, %v, not as %+v", again, got, err, &want)
		}
	})
}
