// Package ferrule holds the domain types that all other packages share. It has
// plain data and pure functions only: it imports the standard library, starts no
// goroutine and does no I/O.
//
// A device appears:
//
//	transport -> protocol -> dock ----------> fleet -> catalog -> agent
//	Link         Session     Manifest, Kind,           Offer
//	                         Device
//
// A call goes down:
//
//	agent, CLI -> pipeline -> fleet -> lane of the dock -> session -> link
//	Call                   Handler     Handler  Handler             Invoke     Send
//
// and comes back as a [Result], or as an [Error] that says whether the call may
// have run.
//
// A measurement:
//
//	poller -> cluster stream -> history store -> agent
//	Poll      Reading           StoredReading    HistoryQuery, Series
//
// # Glossary
//
// Types of this package:
//
//	Manifest        what a device says about itself: its tools, pins, resources, prompts
//	Kind            the hash of a Manifest; devices with the same firmware have the same Kind
//	Tool            an operation that a device offers
//	Effect          what a tool does to the world: reads, changes or endangers
//	Pin             a connection of a board to its surroundings
//	Device          an admitted device; plain data, without socket or lock
//	Trust           whether the owner has adopted a device, or it is still pending
//	Offer           a Tool as agents see it, under the name that they call it by
//	Call            one request by one Principal to one Device
//	Operation       what a Call asks for: call a tool, read a resource, get a prompt, ...
//	Target          the device and the tool that a Call addresses, once resolved
//	Result          the answer of a device
//	Content         a part of a Result for people and models: text, image, sound, resource
//	Question        what a device asks the caller during a call; the reply is an Answer
//	InputRequest    all Questions that must be answered before the device acts
//	Handler         a function that serves a Call; every stage of the pipeline is one
//	DeviceWatcher   a receiver of every device and every change to it
//	Principal       the caller: an agent, a person or the gateway itself
//	Verdict         the decision of the policy on a Call: permit, forbid or ask
//	Error           what went wrong, and whether the call may have run
//	Entry           a record of the journal
//	Chain           a journal from its first record on; each record holds the hash of the one before
//	Event           something that happened to a device, or that it reported unasked
//	Trace           a frame seen on the link to a device, or a remark about it
//	Meter           measures one part of the path of a call; each passage is a Span
//	Poll            how the gateway asks a device for a measurement, and how often
//	Signal          a quantity that a device measures, by name
//	Sample          one measured value of a Signal
//	Gap             a time range in which Samples may be missing
//	Reading         the result of one Poll; a SampleBatch for each Signal
//	StoredReading   a Reading as it stands in a stream, with its position
//	HistoryQuery    selects Signals and a time range
//	Series          the Points of one Signal in a time range, in one Resolution
//	Node            a gateway that is part of a cluster
//	Epoch           counts how often a device has moved from one node to another
//
// Words of other packages:
//
//	Connector       finds peers on one transport (transport)
//	Sighting        a peer in reach that is not a device yet (transport)
//	Link            a live, ordered pipe of Messages to one peer (transport)
//	Message         one frame: its bytes and its channel (transport)
//	Protocol        gives the bytes on a Link a meaning (protocol)
//	Session         a conversation with one device over a Link (protocol)
//	Dock            keeps devices connected; has one connection supervisor for each address (dock)
//	Lane            the queue in front of a device; one call passes at a time (dock)
//	Fleet           all devices on all nodes, and the route to each (fleet)
//	Catalog         the tools that are listed to agents (catalog)
//	Overlay         a file that says what a device cannot say about itself (overlay)
//	Journal         the hash-chained record of calls (journal)
//	Lease           says how a call is undone when its time is up or its caller is gone
//	Limits          physical limits of a tool, which all callers share
//	node lease      a node's claim to be alive (cluster)
//
// Words for states:
//
//	effective       a manifest with all overlays applied
//	pending         a device that was found and is not adopted; people see it, agents do not
//	adopted         a device that its owner trusts
//	quarantined     a tool that cannot be called, because its definition is unusable
//	released        a device whose port was given to another program for a while
package ferrule

import "context"

// Handler serves one call. Every stage of the pipeline, the fleet and a remote
// node have this type. It must be safe for concurrent use. It returns a Result
// or an error, never both. An error that reaches a caller is an [*Error].
type Handler func(ctx context.Context, call *Call) (*Result, error)

// DeviceWatcher receives every device and every change to it, in order. Its
// methods are called with the lock of the caller held: they must be quick and
// must not call back. Both arguments of Put are shared and read only; effective
// is nil if the device was never reached.
type DeviceWatcher interface {
	Put(dev *Device, effective *Manifest)
	Remove(id string)
}
