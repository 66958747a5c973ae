package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
)

// ErrAlone is returned by Read if a node is selected and the gateway is not part of a
// cluster.
var ErrAlone = errors.New("this gateway is not part of a cluster; leave out --node")

// reader reads records and shows those that match.
type reader struct {
	Parts
	filter Filter
	join   *joiner
	order  *order
	read   map[origin]uint64 // last record read of each chain
	shown  map[origin]uint64 // last record before following; nil until then
	// damaged is the number of lines that are not records, and firstDamage describes one.
	damaged     int
	firstDamage error
	nodes       bool // there may be several nodes
}

// Read shows the records that match: those of all nodes if the gateway is part of a
// cluster, else those of the data directory.
func Read(ctx context.Context, p Parts, f Filter) error {
	r := &reader{Parts: p, filter: f, join: newJoiner(f.Records), read: make(map[origin]uint64)}
	limit := maxWaiting
	if f.Records { // in a file they are in order
		limit = 0
	}
	r.order = newOrder(f.Last, limit, func(record Record) error { return r.Show(record, r.nodes) })
	err := errors.Join(r.readAny(ctx), r.Flush())
	switch {
	case errors.Is(err, context.Canceled) && f.Follow:
		return nil
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted before all records were read")
	case r.damaged > 0 && !f.Follow:
		return errors.Join(err, fmt.Errorf("%d damaged lines, the first is %w; run `ferrule audit verify`", r.damaged, r.firstDamage))
	}
	return err
}

// readAny reads the journals of all nodes, or the file if there are no other nodes.
func (r *reader) readAny(ctx context.Context) error {
	if r.filter.Local {
		return r.readFile(ctx)
	}
	err := r.readNodes(ctx)
	switch alone := errors.Is(err, control.ErrSingleNode); {
	case alone && r.filter.Node != "":
		return ErrAlone
	case alone:
		return r.readFile(ctx)
	case errors.Is(err, control.ErrNoGateway) && r.filter.Node == "":
		r.warnLocal()
		return r.readFile(ctx)
	}
	return err
}

// readNodes reads the journals of all nodes through the gateway.
func (r *reader) readNodes(ctx context.Context) error {
	start := time.Now()
	q := ferrule.JournalQuery{Node: r.filter.Node}
	if !r.filter.from.IsZero() {
		q.Since = r.filter.from.Add(-journal.ClockSkew)
	}
	r.nodes = r.filter.Node == ""
	limit := r.order.limit
	r.order.limit = maxWaiting
	err := r.Nodes.Journal(ctx, q, r.take)
	if errors.Is(err, control.ErrSingleNode) || errors.Is(err, control.ErrNoGateway) {
		r.nodes, r.order.limit = false, limit
		return err
	}
	if err == nil {
		err = r.readUncopied(ctx)
	}
	if err := r.drain(ctx, err); err != nil || !r.filter.Follow {
		return hint(err)
	}
	q.Since, q.Follow = start.Add(-journal.ClockSkew), true
	return hint(r.Nodes.Journal(ctx, q, r.take))
}

// drain shows the records that wait, when all were read or err ended the reading.
func (r *reader) drain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, record := range r.join.rest() {
		err = errors.Join(err, r.add(record))
	}
	err = errors.Join(err, r.order.drain(), r.Flush())
	if node := r.filter.Node; err == nil && node != "" && len(r.read) == 0 {
		r.Warn(fmt.Sprintf("no records of node %q", node))
	}
	r.shown = maps.Clone(r.read)
	return err
}

// hint adds what to do if the journals of all nodes cannot be read.
func hint(err error) error {
	var e *ferrule.Error
	if errors.As(err, &e) && e.Hint == "" {
		return e.WithHint("add --local to show only this node's journal")
	}
	return err
}

// readUncopied reads the records of the data directory that have no copy yet.
func (r *reader) readUncopied(ctx context.Context) error {
	file, err := journal.OpenReader(r.Data)
	if err != nil {
		return err
	}
	defer file.Close()
	from := r.local(file.Chain())
	if r.filter.Node != "" && r.filter.Node != from.node {
		return nil
	}
	if err := file.Skip(r.read[from]); err != nil {
		return err
	}
	return file.Read(ctx, false, func(l ferrule.JournalLines) error {
		l.Node = from.node
		return r.take(l)
	})
}

// local returns the origin of the chain in the data directory.
func (r *reader) local(chain string) origin {
	if node := datadir.Node(r.Data); node != "" {
		return origin{node, chain}
	}
	for from := range r.read {
		if from.chain == chain {
			return from
		}
	}
	return origin{"", chain}
}

// readFile reads the journal of the data directory.
func (r *reader) readFile(ctx context.Context) error {
	file, err := journal.OpenReader(r.Data)
	if err != nil {
		return err
	}
	defer file.Close()
	node := datadir.Node(r.Data)
	take := func(l ferrule.JournalLines) error {
		l.Node = node
		return r.take(l)
	}
	err = file.Read(ctx, false, take)
	if err := r.drain(ctx, err); err != nil || !r.filter.Follow {
		return err
	}
	return file.Read(ctx, true, take)
}

// take handles lines of a journal.
func (r *reader) take(l ferrule.JournalLines) error {
	from := origin{l.Node, l.Chain}
	for e, err := range journal.Entries(l.Lines) {
		switch {
		case err != nil:
			r.damage(l, err)
		case r.shown != nil && e.Seq <= r.shown[from]:
		default:
			records := r.join.add(Record{Node: l.Node, Chain: l.Chain, Entry: e})
			if r.order.passes() {
				records = append(r.join.lost(from), records...)
			}
			for _, record := range records {
				if err := r.add(record); err != nil {
					return err
				}
			}
		}
	}
	r.read[from] = max(r.read[from], l.Last)
	return nil
}

// damage counts a line that is not a record. When following, it warns of the first at
// once.
func (r *reader) damage(l ferrule.JournalLines, err error) {
	if r.damaged++; r.damaged > 1 {
		return
	}
	r.firstDamage = fmt.Errorf("one of records %d to %d of chain %s: %w", l.First, l.Last, l.Chain, err)
	if r.filter.Follow {
		r.Warn(fmt.Sprintf("damaged line: %v; run `ferrule audit verify`", r.firstDamage))
	}
}

// add orders a record, if it matches. The outcome of a call replaces the call that was added
// without one.
func (r *reader) add(record Record) error {
	if record.listed {
		r.order.remove(record.at)
	}
	if !r.filter.Matches(record) {
		return nil
	}
	return r.order.add(record)
}
