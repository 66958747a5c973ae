package cluster

import (
	"fmt"
	"hash/fnv"
)

// The names of what nodes share. All subjects of a tenant begin alike, and so do
// all its keys, so that a server can keep tenants apart; docs/reference/cluster.md lists them.
const (
	nodesBucket   = "ferrule-nodes"
	kindsBucket   = "ferrule-kinds"
	journalStream = "ferrule-journal"
	eventsStream  = "ferrule-events"
	samplesStream = "ferrule-samples"
	spoolStream   = "ferrule-spool" // on a leaf, of its own
	layoutKey     = "layout"        // in nodesBucket, of all tenants
)

func devicesBucket(shard int) string { return fmt.Sprintf("ferrule-devices-%d", shard) }

// names makes the subjects and keys of one node.
type names struct{ tenant, node string }

func (n names) key(of string) string       { return n.tenant + "." + of }
func (n names) subject(rest string) string { return "ferrule." + n.tenant + "." + rest }
func (n names) inbox() string              { return n.subject("inbox." + n.node) }
func (n names) replies() string            { return n.subject("reply." + n.node + ".") }

// at is where one run of a node is asked: another of the same name hears nothing of it.
func (n names) at(node, boot, verb string) string {
	return n.subject("node." + node + "." + boot + "." + verb)
}
func (n names) journal(chain string) string { return n.subject("journal." + n.node + "." + chain) }
func (n names) events() string              { return n.subject("event." + n.node + ".>") }
func (n names) event(id, what string) string {
	return n.subject("event." + n.node + "." + id + "." + what)
}

// sample is where a reading is published. One of a leaf has a word more, by which the
// stream of a cluster leaves it alone.
func (n names) sample(device, probe string, site bool) string {
	subject := n.subject("sample." + n.node + "." + device + "." + probe)
	if site {
		subject += ".site"
	}
	return subject
}

// The verbs that a node is asked with.
const (
	verbCall   = "call"   // serve this call
	verbCancel = "cancel" // its caller has gone away
	verbAsk    = "ask"    // what came of it?
	verbAnswer = "answer" // to a question of its device
)

// shardOf is where the record of a key is kept.
func shardOf(key string, shards int) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % uint32(shards))
}
