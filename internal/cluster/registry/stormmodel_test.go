package registry

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
)

// Measured inputs of the simulation, rounded down. Clients and servers shared two cores.
const (
	writeRate   = 14_600  // records per second, written with compare-and-set: docs/figures/nodes.md
	nodeRate    = 75_000  // records per second that a node applies, 5,000 in 66 ms: docs/figures/nodes.md
	admitRate   = 770     // devices per second that a node admits, 13,500 in 17.33 s: docs/figures/toys.md
	storedRate  = 280_000 // stored records per second that a server delivers: docs/figures/storms.md
	changedRate = 70_000  // changes per second that a server delivers, each to all nodes: docs/figures/storms.md

	measuredCores = 2
)

// Assumed inputs. Besides:
//   - Deliveries grow with the cores of a server. Writes do not, and neither slows the other.
//   - Leases are delivered before records. Nodes that read records get equal shares.
//   - A request without a leader is not answered, which is the slowest way to fail.
//   - Devices spread evenly over the nodes that are left, and stay there.
//   - Opening a watch costs nothing: its cost was not measured.
const (
	regions     = 3                // each with a third of the nodes and one server
	noticeTime  = 30 * time.Second // within which devices notice that their node is gone
	startTime   = time.Second      // within which the nodes of a region start
	minElection = 4 * time.Second  // in nats-server, like maxElection
	maxElection = 9 * time.Second
)

// step is the resolution of the simulation.
const step = 100 * time.Millisecond

// storm is a tenant whose nodes and servers fail. Its times are those of the code, unless
// a test breaks them.
type storm struct {
	ttl, renew, jitter time.Duration
	cores              int // of each server
	shards             int
	records            int // one per device
	rng                *rand.Rand

	now        time.Duration
	nodes      []*stormNode
	servers    int
	leaderless []time.Duration // when each shard has a leader again; the last is the bucket of leases
	arrivals   []arrival       // devices that reconnect, in order
	writes     []*claimRound   // in the order in which servers process them
	leases     float64         // deliveries of leases that wait

	stormResult
}

// stormResult is what happened since the last failure or return.
type stormResult struct {
	since        time.Duration
	claimed      int
	expired      int                   // leases of nodes that were up
	longest      time.Duration         // between two renewals of a node that was up
	delay        time.Duration         // longest time until a lease is delivered
	opened, sent map[time.Duration]int // watches opened and leases delivered, by second
	claimTime    time.Duration         // until the last device is claimed
	readTime     time.Duration         // until the last node has read all records, and may write
	seenTime     time.Duration         // until the last node has all changes
}

type stormNode struct {
	up        bool
	linked    time.Duration // when it is connected again
	renewed   time.Duration // when its lease was last written
	lapsed    bool          // its lease has expired
	tick      time.Duration
	failed    bool
	refreshes []time.Duration
	unread    float64       // records to read before it may write
	behind    float64       // changes to read
	waiting   []int         // claims to write, by shard
	round     *claimRound   // in progress
	pause     time.Duration // before the next round
	resend    int           // claims that were sent and not answered in time
}

// claimRound is what a node writes in one round of writeAll.
type claimRound struct {
	sent            time.Duration
	left, originals int
	stuck           []int // by shard, in shards without a leader
	anyStuck        bool
}

type arrival struct {
	at          time.Duration
	node, shard int
}

func newStorm(nodes, devices, cores int) *storm {
	s := &storm{
		ttl: LeaseTTL, renew: LeaseRenew, jitter: settleJitter, cores: cores, shards: engine.DefaultConfig().Shards, records: devices,
		rng: rand.New(rand.NewPCG(1, 2)), servers: regions,
	}
	s.leaderless = make([]time.Duration, s.shards+1)
	s.addNodes(nodes)
	return s
}

func (s *storm) addNodes(count int) {
	for range count {
		s.nodes = append(s.nodes, &stormNode{up: true, waiting: make([]int, s.shards)})
	}
}

// begin lets nodes renew their leases at times of their own, until something happens.
func (s *storm) begin() {
	for _, n := range s.nodes {
		n.tick = s.within(s.renew)
		n.renewed = n.tick - s.renew
	}
	s.forget()
	s.run(2 * s.renew)
	s.forget()
}

func (s *storm) forget() {
	s.stormResult = stormResult{since: s.now, opened: make(map[time.Duration]int), sent: make(map[time.Duration]int)}
}

func (s *storm) within(d time.Duration) time.Duration {
	return time.Duration(s.rng.Int64N(int64(d) + 1))
}

// loseServer takes away a server that led the leases and its share of the shards. A third
// of the nodes were connected to it. A silent one does not close their connections.
func (s *storm) loseServer(silent bool) {
	s.servers--
	for i := 0; i < s.shards; i += regions {
		s.leaderless[i] = s.now + minElection + s.within(maxElection-minElection)
	}
	s.leaderless[s.shards] = s.now + maxElection
	for i, n := range s.nodes {
		if i/regions%regions != 0 || !n.up {
			continue
		}
		n.linked = s.now + engine.ReconnectWait + s.within(engine.ReconnectJitter)
		if silent {
			n.linked += engine.MaxPings*engine.PingInterval + s.within(engine.PingInterval)
		}
		s.refresh(n, n.linked)
	}
}

// loseRegion takes away a server and a third of the nodes. No connection is closed. Their
// devices connect to the other nodes; it returns how many.
func (s *storm) loseRegion() (devices int) {
	var others []int
	for i, n := range s.nodes {
		if n.up = i%regions != 0; n.up {
			others = append(others, i)
		}
	}
	s.loseServer(true)
	for range s.records / regions {
		s.arrivals = append(s.arrivals, arrival{s.now + s.within(noticeTime), others[s.rng.IntN(len(others))], s.rng.IntN(s.shards)})
	}
	byTime := func(a, b arrival) int { return cmp.Compare(a.at, b.at) }
	slices.SortFunc(s.arrivals, byTime)
	admitted := make([]time.Duration, len(s.nodes)) // the last device of each node
	for i, a := range s.arrivals {
		admitted[a.node] = max(a.at, admitted[a.node]+time.Second/admitRate)
		s.arrivals[i].at = admitted[a.node]
	}
	slices.SortFunc(s.arrivals, byTime)
	return len(s.arrivals)
}

// returnRegion starts the server and all nodes of the region at once.
func (s *storm) returnRegion() {
	s.servers++
	for _, n := range s.nodes {
		if !n.up {
			*n = stormNode{up: true, renewed: s.now, tick: s.now + s.within(startTime), waiting: n.waiting}
			s.read(n)
		}
	}
}

// refresh is Registry.Refresh.
func (s *storm) refresh(n *stormNode, at time.Duration) {
	n.refreshes = append(n.refreshes, at+settleTime+s.within(s.jitter))
}

// read opens the watches of a node and reads all records.
func (s *storm) read(n *stormNode) {
	n.unread, n.behind = float64(s.records), 0
	s.opened[s.now.Truncate(time.Second)] += s.shards + 1
}

func (s *storm) run(d time.Duration) {
	for end := s.now + d; s.now < end; s.now += step {
		s.step()
	}
}

func (s *storm) step() {
	for ; len(s.arrivals) > 0 && s.arrivals[0].at <= s.now; s.arrivals = s.arrivals[1:] {
		s.nodes[s.arrivals[0].node].waiting[s.arrivals[0].shard]++
	}
	up, leases := 0, 0
	for _, n := range s.nodes {
		if !n.lapsed && s.now-n.renewed >= s.ttl {
			n.lapsed = true
			leases++ // its end is delivered like a renewal
			if n.up {
				s.expired++
			}
		}
		if !n.up {
			continue
		}
		up++
		leases += s.keepLease(n)
		if len(n.refreshes) > 0 && slices.Min(n.refreshes) <= s.now {
			n.refreshes = slices.DeleteFunc(n.refreshes, func(at time.Duration) bool { return at <= s.now })
			s.read(n)
		}
		s.keepOwn(n)
	}
	s.leases += float64(leases * up)
	s.sent[s.now.Truncate(time.Second)] += leases * up
	s.deliver(s.write())
}

// keepLease is Session.keepLease. It returns the number of renewals, 0 or 1.
func (s *storm) keepLease(n *stormNode) int {
	if s.now < n.tick {
		return 0
	}
	n.tick += s.renew
	if s.now < n.linked || s.now < s.leaderless[s.shards] {
		n.failed = true
		return 0
	}
	if n.failed {
		s.refresh(n, s.now)
	}
	s.longest = max(s.longest, s.now-n.renewed)
	n.failed, n.lapsed, n.renewed = false, false, s.now
	return 1
}

// keepOwn is Session.keepOwn: rounds that end when all writes are answered, or fail.
func (s *storm) keepOwn(n *stormNode) {
	if r := n.round; r != nil {
		timeout := s.now >= r.sent+engine.WriteTime
		if r.left > 0 && !timeout || r.anyStuck && !timeout {
			return
		}
		n.round = nil
		if timeout {
			n.pause, n.resend = s.now+writePause, r.left
			for shard, count := range r.stuck {
				n.waiting[shard] += count
			}
		}
	}
	if n.unread > 0 || s.now < n.pause || s.now < n.linked {
		return
	}
	r := &claimRound{sent: s.now, left: n.resend, stuck: make([]int, s.shards)}
	for shard, count := range n.waiting {
		count = min(count, writers*writeBatch-r.originals)
		n.waiting[shard] -= count
		if s.now < s.leaderless[shard] {
			r.stuck[shard], r.anyStuck = count, r.anyStuck || count > 0
			continue
		}
		r.originals += count
	}
	r.left += r.originals
	if r.left == 0 && !r.anyStuck {
		return
	}
	n.round, n.resend = r, 0
	s.writes = append(s.writes, r)
}

// write processes claims in order, and returns how many records it changed. Servers do
// not know that a node has stopped waiting.
func (s *storm) write() (changed int) {
	for budget := int(writeRate * step / time.Second); budget > 0 && len(s.writes) > 0; {
		r := s.writes[0]
		n := min(budget, r.left)
		budget, r.left = budget-n, r.left-n
		n = min(n, r.originals) // the others were written before
		r.originals -= n
		changed += n
		if r.left == 0 {
			s.writes = s.writes[1:]
		}
	}
	if s.claimed += changed; changed > 0 {
		s.claimTime = s.now - s.since
	}
	return changed
}

// deliver delivers leases, then changes and stored records.
func (s *storm) deliver(changed int) {
	budget := step.Seconds() * float64(s.servers*s.cores) / measuredCores // seconds of a measured server
	done := min(s.leases, budget*changedRate)
	s.leases -= done
	s.delay = max(s.delay, time.Duration(s.leases/(budget*changedRate)*float64(step)))
	budget -= done / changedRate
	var reading []*stormNode
	for _, n := range s.nodes {
		if n.behind += float64(changed); n.up && n.unread+n.behind > 0 {
			reading = append(reading, n)
		}
	}
	for i, n := range reading {
		share := budget / float64(len(reading)-i)
		stored := min(n.unread, share*storedRate, nodeRate*step.Seconds())
		n.unread -= stored
		changes := min(n.behind, (share-stored/storedRate)*changedRate, nodeRate*step.Seconds()-stored)
		n.behind -= changes
		budget -= stored/storedRate + changes/changedRate
		if s.seenTime = s.now - s.since; stored > 0 {
			s.readTime = s.seenTime
		}
	}
}
