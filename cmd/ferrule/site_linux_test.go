package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var (
	cutTime = flag.Duration("cut", time.Minute, "how long TestSite cuts a site off; longer than a lease")
	hubSize = flag.Int("hub", 1, "how many servers the hub of TestSite has")
)

// TestSite cuts the connection between a hub and a site with two nodes. The site
// continues to work, and the hub reports its devices offline. One of the site's nodes is
// killed and restarted meanwhile. After the connection is back, all records arrive at
// the hub, once and in order.
func TestSite(t *testing.T) {
	if os.Getenv(namespaceMark) == "" {
		t.Parallel()
	}
	if !inNamespace(t, syscall.CLONE_NEWNET, "-cut", cutTime.String(), "-hub", strconv.Itoa(*hubSize)) {
		return
	}
	c := newCable(t)
	servers := natscluster.Start(t, natscluster.Options{Size: *hubSize, Place: func(int) natscluster.Place { return natscluster.Place{Host: hubAddress} }})
	hub := newNode(t, "hub", 1, joining(servers, "replicas: "+strconv.Itoa(min(3, *hubSize))))
	hub.start()
	steady, killed := newSite(t, "steady", 5000, servers), newSite(t, "killed", 6000, servers)
	sites := []*siteNode{steady, killed}
	for _, s := range sites {
		s.up()
		hub.reaches(s.name+"-0", wait.Ample)
		s.reaches("hub-0", wait.Ample)
		s.works()
		s.visit()
	}

	c.cut()
	began := time.Now()
	until := time.After(*cutTime)
	far := startFar(hub, sites)
	for _, s := range sites {
		s.leave()
		s.visit()
	}
	time.Sleep(*cutTime / 2)
	wait.For(t, "a device of the hub is offline at the site", func() bool {
		_, err := steady.call("hub-0", "gpio_read", `{"pin":2}`)
		return err != nil && ferrule.AsError(err).Code == ferrule.Offline
	})
	killed.rests()
	killed.kill()
	killed.up()
	killed.reaches("killed-0", wait.Ample)
	killed.works()
	for _, s := range sites {
		s.leave()
		s.visit()
	}
	<-until
	far.judge(began)
	c.mend()

	back := time.Now()
	for _, s := range sites {
		hub.reaches(s.name+"-0", wait.Ample)
		t.Logf("the cut took %v; %s could be called again %v after it", back.Sub(began).Round(time.Second), s.name, time.Since(back).Round(time.Millisecond))
	}
	figure.AtMost(t, "all sites can be called again after a cut", time.Since(back), 15*time.Second)
	for _, s := range sites {
		s.leave()
		s.rests()
	}
	for _, s := range sites {
		s.journalArrives(hub)
		t.Logf("%d calls at %s were made meanwhile; `ferrule audit verify` at the hub found its journal whole %v after the cut", len(s.tokens), s.name, time.Since(back).Round(time.Millisecond))
	}
	for _, s := range sites {
		s.eventsArrive(servers)
		s.once(far.calls)
	}
}

// hubAddress is where the hub's servers listen, in their network and from the site.
const hubAddress = "10.82.0.1"

// cable joins two networks: the hub's, in which the test runs, and the site's.
type cable struct{ t *testing.T }

func newCable(t *testing.T) cable {
	t.Helper()
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil { // where names of networks are kept
		t.Fatal(err)
	}
	c := cable{t}
	for _, line := range []string{
		"link set lo up",
		"address add " + hubAddress + "/32 dev lo",
		"netns add site",
		"link add to-site type veth peer name to-hub netns site",
		"address add 10.82.1.1/30 dev to-site",
		"link set to-site up",
		"-n site address add 10.82.1.2/30 dev to-hub",
		"-n site link set lo up",
		"-n site link set to-hub up",
		"-n site route add default via 10.82.1.1",
	} {
		c.ip(line)
	}
	return c
}

func (c cable) ip(line string) {
	c.t.Helper()
	if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		c.t.Fatalf("ip %s: %v: %s", line, err, out)
	}
}

func (c cable) cut()  { c.t.Helper(); c.ip("link set to-site down") }
func (c cable) mend() { c.t.Helper(); c.ip("link set to-site up") }

// inSite is the prefix of a command that runs at the site.
var inSite = []string{"ip", "netns", "exec", "site"}

// siteNode is a node at the site with three boards. The third comes and goes.
type siteNode struct {
	*upNode
	port    int // of the first board
	visitor *exec.Cmd
	want    map[string][]ferrule.EventType // expected events of each board

	working *localWork
	tokens  []string // of the calls that were made here
}

const steadyBoards = 2

// dialling returns the configuration of a leaf of acme.
func dialling(c *natscluster.Cluster) string {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.LeafURLAs("acme"))
	}
	return "  mode: leaf\n  secret: " + c.Secret + "\n  ca: '" + c.CA + "'\n  tenant: acme\n  servers: [" + strings.Join(urls, ", ") + "]\n"
}

func newSite(t *testing.T, name string, port int, servers *natscluster.Cluster) *siteNode {
	t.Helper()
	cluster := dialling(servers) + "devices:\n  tcp:\n"
	s := &siteNode{port: port, want: make(map[string][]ferrule.EventType)}
	for i := range steadyBoards + 1 {
		cluster += fmt.Sprintf("    - {address: '127.0.0.1:%d', name: %s-%d}\n", port+i, name, i)
	}
	s.upNode = newNode(t, name, 0, cluster)
	s.prefix = inSite
	s.boardsAt(0, steadyBoards)
	return s
}

// board returns the ID of a board; the last one is the visitor.
func (s *siteNode) board(i int) string { return fmt.Sprintf("%s-%d", s.name, i) }

// boardsAt simulates boards, from one on.
func (s *siteNode) boardsAt(first, count int) *exec.Cmd {
	s.t.Helper()
	command := append(slices.Clone(inSite), "ferrule", "sim", "mcpu", "--tcp", fmt.Sprint("127.0.0.1:", s.port+first), "--count", strconv.Itoa(count))
	cmd := exec.Command(command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { end(cmd) })
	return cmd
}

func end(cmd *exec.Cmd) {
	if cmd != nil && cmd.ProcessState == nil {
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// up starts the node.
func (s *siteNode) up() {
	s.t.Helper()
	s.start()
	for i := range steadyBoards {
		s.becomes(i, ferrule.StateOnline)
	}
	if s.visitor != nil {
		s.becomes(steadyBoards, ferrule.StateOnline)
	}
}

// visit plugs the third board in, and leave takes it out.
func (s *siteNode) visit() {
	s.t.Helper()
	s.visitor = s.boardsAt(steadyBoards, 1)
	s.becomes(steadyBoards, ferrule.StateOnline)
}

func (s *siteNode) leave() {
	s.t.Helper()
	end(s.visitor)
	s.visitor = nil
	s.becomes(steadyBoards, ferrule.StateOffline)
}

// becomes waits until a board is in a state, and records it.
func (s *siteNode) becomes(board int, state ferrule.State) {
	s.t.Helper()
	id := s.board(board)
	wait.For(s.t, fmt.Sprint(id, " is ", state), func() bool { return s.device(id).State == string(state) })
	what := ferrule.Appeared
	if state == ferrule.StateOffline {
		what = ferrule.Gone
	}
	s.want[id] = append(s.want[id], what)
}

// device returns a device of the node.
func (n *upNode) device(id string) builtin.DescribedDevice {
	result, err := n.call(ferrule.GatewayID, "list_devices", "{}")
	if err != nil {
		return builtin.DescribedDevice{}
	}
	var list builtin.ListDevicesOutput
	if err := json.Unmarshal(result.Value, &list); err != nil {
		n.t.Fatal(err)
	}
	for _, d := range list.Devices {
		if d.ID == id {
			return d
		}
	}
	return builtin.DescribedDevice{}
}

// localWork is the calls of an agent at the site.
type localWork struct {
	stop chan struct{}
	wg   sync.WaitGroup
}

// readToken stands for the token of a call that has none.
const readToken = "read"

// works starts the agent: reads and changes in turn. None may fail.
func (s *siteNode) works() {
	agent := startMCP(s.t, s.data)
	w := &localWork{stop: make(chan struct{})}
	s.working = w
	w.wg.Go(func() {
		defer agent.session.Close()
		for i := len(s.tokens); ; i++ {
			select {
			case <-w.stop:
				return
			case <-time.After(25 * time.Millisecond):
			}
			token, board := readToken, s.board(i%steadyBoards)
			params := &mcp.CallToolParams{Name: board + "__gpio_read", Arguments: map[string]any{"pin": 2}}
			if i%4 < 2 {
				token = fmt.Sprintf("at %s: %d", s.name, i)
				params = &mcp.CallToolParams{Name: board + "__pulse", Arguments: map[string]any{"token": token}}
			}
			result, err := agent.session.CallTool(s.t.Context(), params)
			if err == nil {
				err = toolError(result)
			}
			if err != nil {
				s.t.Errorf("a call at %s: %v", s.name, err)
			}
			s.tokens = append(s.tokens, token)
		}
	})
}

// rests ends the agent.
func (s *siteNode) rests() {
	close(s.working.stop)
	s.working.wg.Wait()
}

// far is calls from the hub to the site, one a second, while the connection is cut.
type far struct {
	hub  *upNode
	stop chan struct{}
	wg   sync.WaitGroup

	mu      sync.Mutex
	calls   []farCall
	listed  chan struct{} // closed when all sites are listed as offline
	offline time.Time     // when that was
}

type farCall struct {
	board, token string
	began, ended time.Time
	err          *ferrule.Error
}

func startFar(hub *upNode, sites []*siteNode) *far {
	f := &far{hub: hub, stop: make(chan struct{}), listed: make(chan struct{})}
	f.wg.Go(func() {
		for i := 0; ; i++ {
			token, board := fmt.Sprint("from the hub: ", i), sites[i%len(sites)].board(0)
			f.wg.Go(func() { f.call(board, token) })
			if f.offline.IsZero() && !slices.ContainsFunc(sites, func(s *siteNode) bool { return hub.device(s.board(0)).State != string(ferrule.StateOffline) }) {
				f.offline = time.Now()
				close(f.listed)
			}
			select {
			case <-f.stop:
				return
			case <-time.After(time.Second):
			}
		}
	})
	return f
}

func (f *far) call(board, token string) {
	agent := &nodeAgent{t: f.hub.t, node: f.hub}
	defer func() { agent.lost(agent.session) }()
	began := time.Now()
	err := agent.call(board+"__pulse", map[string]any{"token": token})
	e := &ferrule.Error{}
	if err != nil && !errors.As(err, &e) {
		f.hub.t.Errorf("a call from the hub: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, farCall{board, token, began, time.Now(), e})
}

// judge ends the calls when the sites are listed as offline. It checks that each was not
// sent or, before that, may have run.
func (f *far) judge(cut time.Time) {
	t := f.hub.t
	t.Helper()
	select {
	case <-f.listed:
	case <-time.After(wait.Ample):
		t.Error("the site is not listed as offline")
	}
	close(f.stop)
	f.wg.Wait()
	slices.SortFunc(f.calls, func(a, b farCall) int { return a.began.Compare(b.began) })
	var unsure, longest time.Duration
	codes := make(map[ferrule.Code]int)
	for _, c := range f.calls {
		codes[c.err.Code]++
		longest = max(longest, c.ended.Sub(c.began))
		after := c.began.Sub(cut)
		switch {
		case c.err.Code == ferrule.Offline:
			if !strings.Contains(c.err.Message, "offline since") {
				t.Errorf("it does not say since when: %v", c.err)
			}
		case c.err.Code == ferrule.Unanswered && c.began.Before(f.offline):
			unsure = after
		default:
			t.Errorf("a call %v after the cut: %v", after, c.err)
		}
	}
	t.Logf("%d calls from the hub: %v; unanswered until %v after the cut; the longest took %v", len(f.calls), codes, unsure.Round(time.Millisecond), longest.Round(time.Millisecond))
	figure.AtMost(t, "a site that is cut off is listed as offline", f.offline.Sub(cut), 30*time.Second)
}

// once asks the boards for their counts: what succeeded ran once, what was not sent did
// not run, and nothing ran twice.
func (s *siteNode) once(far []farCall) {
	s.t.Helper()
	count := func(board, token string) int {
		result, err := s.call(board, "pulse", fmt.Sprintf(`{"token":%q}`, token))
		if err != nil {
			s.t.Fatal(err)
		}
		var said struct{ Runs int }
		if err := json.Unmarshal(result.Value, &said); err != nil {
			s.t.Fatal(err)
		}
		return said.Runs - 1 // minus this call
	}
	for i, token := range s.tokens {
		if token == readToken || i%8 > 1 && i < len(s.tokens)-100 { // a sample, because all would take as long as the cut
			continue
		}
		if n := count(s.board(i%steadyBoards), token); n != 1 {
			s.t.Errorf("%q ran %d times", token, n)
		}
	}
	for _, c := range far {
		if c.board != s.board(0) {
			continue
		}
		if n := count(c.board, c.token); n > 1 || n == 1 && !c.err.MayHaveRun() {
			s.t.Errorf("%q ran %d times, and its caller got %v", c.token, n, c.err)
		}
	}
}

// journalArrives waits until the hub has all records of the node's own file, and shows
// the calls during the cut.
func (s *siteNode) journalArrives(hub *upNode) {
	s.t.Helper()
	var out []byte
	wait.For(s.t, "the journal of "+s.name+" is at the hub", func() bool {
		own, err := journal.Verify(s.data)
		if err != nil {
			s.t.Fatal(err)
		}
		out, err = exec.Command("ferrule", "audit", "verify", "--json", "--data", hub.data).Output()
		var report audit.Verification
		if err != nil || json.Unmarshal(out, &report) != nil {
			return false
		}
		i := slices.IndexFunc(report.Chains, func(c audit.Verified) bool { return c.Copy && c.Node == s.name })
		return i >= 0 && report.Wrong == 0 && report.Chains[i].Records == own.Records && report.Chains[i].Hash == own.Hash
	})
	shown, err := exec.Command("ferrule", "audit", "--node", s.name, "--tool", "pulse", "--outcome", "ok", "--json", "--data", hub.data).Output()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, token := range s.tokens {
		if token != readToken && !strings.Contains(string(shown), `"`+token+`"`) {
			s.t.Errorf("%q is not in the journal at the hub", token)
		}
	}
}

// eventsArrive checks the events of the node at the hub: complete, in order and without
// duplicates.
func (s *siteNode) eventsArrive(servers *natscluster.Cluster) {
	s.t.Helper()
	conn, err := nats.Connect(servers.URLs(), nats.RootCAs(servers.CA))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		s.t.Fatal(err)
	}
	var got map[string][]ferrule.EventType
	defer func() { s.t.Logf("events of %s at the hub: %v", s.name, got) }()
	same := func() bool {
		got = s.eventsAt(js)
		for id, want := range s.want {
			if !slices.Equal(got[id], want) {
				return false
			}
		}
		return len(got) == len(s.want)
	}
	wait.For(s.t, "all events are at the hub", same)
	time.Sleep(time.Second)
	if !same() {
		s.t.Errorf("events are %v, want %v", got, s.want)
	}
}

// eventsAt reads the events of the node by device. Their numbers grow by one.
func (s *siteNode) eventsAt(js jetstream.JetStream) map[string][]ferrule.EventType {
	s.t.Helper()
	consumer, err := js.OrderedConsumer(s.t.Context(), "ferrule-events", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"ferrule.acme.event." + s.name + ".>"}})
	if err != nil {
		s.t.Fatal(err)
	}
	got := make(map[string][]ferrule.EventType)
	batch, err := consumer.FetchNoWait(1000)
	if err != nil {
		s.t.Fatal(err)
	}
	for next := uint64(1); ; next++ {
		msg, ok := <-batch.Messages()
		if !ok {
			return got
		}
		var e ferrule.Event
		if err := json.Unmarshal(msg.Data(), &e); err != nil {
			s.t.Fatal(err)
		}
		if e.Seq != next || e.Node != s.name {
			s.t.Fatalf("event %d is %s", next, msg.Data())
		}
		got[e.Device] = append(got[e.Device], e.Type)
	}
}
