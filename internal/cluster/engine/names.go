package engine

import "fmt"

// The names of shared buckets and streams. docs/reference/cluster.md lists them.
const (
	NodesBucket   = "ferrule-nodes"
	KindsBucket   = "ferrule-kinds"
	SharedBucket  = "ferrule-shared"
	TasksBucket   = "ferrule-tasks"
	JournalStream = "ferrule-journal"
	EventsStream  = "ferrule-events"
	SamplesStream = "ferrule-samples"
	SpoolStream   = "ferrule-spool" // local to a leaf
	LayoutKey     = "layout"        // in NodesBucket, for all tenants
)

// SpoolSubjects are the subjects of a leaf's spool. They do not cross to the hub.
const SpoolSubjects = "ferrule-spool.>"

// DevicesBucket returns the name of the bucket of a registry shard.
func DevicesBucket(shard int) string { return fmt.Sprintf("ferrule-devices-%d", shard) }

// Names makes the subjects and keys of one node. All subjects and keys of a tenant
// share a prefix, by which a server keeps tenants apart.
type Names struct{ Tenant, Node string }

// Key returns the key of a name in a bucket.
func (n Names) Key(name string) string { return n.Tenant + "." + name }

// Subject returns a subject of the tenant.
func (n Names) Subject(rest string) string { return "ferrule." + n.Tenant + "." + rest }

// Inbox returns the prefix of the subjects on which NATS itself answers.
func (n Names) Inbox() string { return n.Subject("inbox." + n.Node) }

// Replies returns the prefix of the subjects on which other nodes answer calls.
func (n Names) Replies() string { return n.Subject("reply." + n.Node + ".") }

// Request returns the subject of a request to one run of a node. Another node of the
// same name does not receive it.
func (n Names) Request(node, boot, verb string) string {
	return n.Subject("node." + node + "." + boot + "." + verb)
}

// Shared returns the subject on which nodes announce shared records to each other.
func (n Names) Shared() string { return n.Subject("shared") }

// Journal returns the subject of a journal chain of this node.
func (n Names) Journal(chain string) string { return n.Subject("journal." + n.Node + "." + chain) }

// Events returns the filter for the events of this node.
func (n Names) Events() string { return n.Subject("event." + n.Node + ".>") }

// Event returns the subject of an event of a device.
func (n Names) Event(device, event string) string {
	return n.Subject("event." + n.Node + "." + device + "." + event)
}

// Sample returns the subject of a reading. A leaf's has one more token, so that the
// stream of the cluster does not store it.
func (n Names) Sample(device, poll string, leaf bool) string {
	subject := n.Subject("sample." + n.Node + "." + device + "." + poll)
	if leaf {
		subject += ".site"
	}
	return subject
}
