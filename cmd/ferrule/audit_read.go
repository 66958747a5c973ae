package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// skew is by how much the clocks of nodes may differ.
const skew = 10 * time.Minute

// origin is whose records, and of which chain: a data directory that was copied to
// another machine begins like the first.
type origin struct{ node, chain string }

// auditor shows records of journals as they are read.
type auditor struct {
	app    *app
	filter filter
	hold   *hold
	read   map[origin]uint64 // how far each chain was read
	told   map[origin]uint64 // how far it was when following began; nil before
	// damaged is how many lines are no records, and first is about one of them.
	damaged int
	first   error
	width   int // of the column of nodes; zero if there is none
}

// audit shows what is asked for: of all nodes if the gateway knows of several, else
// of the data directory.
func (a *app) audit(ctx context.Context, f filter) error {
	au := &auditor{app: a, filter: f, read: make(map[origin]uint64)}
	au.hold = newHold(f.last, au.show)
	err := au.readAny(ctx)
	switch {
	case errors.Is(err, context.Canceled) && f.follow:
		return nil
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted; not all was read")
	case au.damaged > 0 && !f.follow:
		return errors.Join(err, fmt.Errorf("%d lines are damaged, and first %w; `ferrule audit verify` tells more", au.damaged, au.first))
	}
	return err
}

// readAny reads the journals of all nodes, or the file if there is no other.
func (au *auditor) readAny(ctx context.Context) error {
	if au.filter.local {
		return au.readFile(ctx)
	}
	err := au.readNodes(ctx)
	switch alone := errors.Is(err, control.ErrSingleNode); {
	case alone && au.filter.node != "":
		return usageError{errors.New("this gateway stands alone and has no other nodes; leave out --node")}
	case alone:
		return au.readFile(ctx)
	case errors.Is(err, control.ErrNoGateway) && au.filter.node == "":
		au.app.sayOnlyHere()
		return au.readFile(ctx)
	}
	return err
}

// sayOnlyHere tells that there is more than what is shown, if there is.
func (a *app) sayOnlyHere() {
	if nodeName(a.dataDir()) != "" {
		fmt.Fprintln(a.stderr, "only this node's journal: the gateway is not running")
	}
}

// lookingClient connects to the gateway that is meant, and leaves no trace where
// there is none.
func (a *app) lookingClient() (*control.Client, error) {
	path, err := control.FindSocket(a.dataDir())
	if err != nil {
		return nil, err
	}
	return control.NewClient(path), nil
}

// readNodes reads the journals of all nodes through the gateway.
func (au *auditor) readNodes(ctx context.Context) error {
	client, err := au.app.lookingClient()
	if err != nil {
		return err
	}
	defer client.Close()
	start := time.Now()
	q := ferrule.JournalQuery{Node: au.filter.node}
	if !au.filter.from.IsZero() {
		q.Since = au.filter.from.Add(-skew)
	}
	if au.filter.node == "" {
		au.width = 8
	}
	au.hold.most = maxHeld
	err = client.Journal(ctx, q, au.take)
	if errors.Is(err, control.ErrSingleNode) || errors.Is(err, control.ErrNoGateway) {
		au.width, au.hold.most = 0, 0
		return err
	}
	if err == nil {
		err = au.readUncopied(ctx)
	}
	if err := au.drain(ctx, err); err != nil || !au.filter.follow {
		return hint(err)
	}
	q.Since, q.Follow = start.Add(-skew), true
	return hint(client.Journal(ctx, q, au.take))
}

// drain shows what is held when all that there was has been read, or an error has
// ended that.
func (au *auditor) drain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = errors.Join(err, au.hold.drain())
	if node := au.filter.node; err == nil && node != "" && len(au.read) == 0 {
		fmt.Fprintf(au.app.stderr, "there are no records of a node %q\n", node)
	}
	au.told = maps.Clone(au.read)
	return err
}

// hint adds what can be done when the journals of all nodes cannot be read.
func hint(err error) error {
	var e *ferrule.Error
	if errors.As(err, &e) && e.Hint == "" {
		return e.WithHint("--local shows this node's journal alone")
	}
	return err
}

// readUncopied reads what the data directory has and no other node has yet.
func (au *auditor) readUncopied(ctx context.Context) error {
	r, err := journal.OpenReader(au.app.dataDir())
	if err != nil {
		return err
	}
	defer r.Close()
	from := au.here(r.Chain())
	if au.filter.node != "" && au.filter.node != from.node {
		return nil
	}
	if err := r.Skip(au.read[from]); err != nil {
		return err
	}
	return r.Read(ctx, false, func(l ferrule.JournalLines) error {
		l.Node = from.node
		return au.take(l)
	})
}

// here is whose the chain in the data directory is.
func (au *auditor) here(chain string) origin {
	if node := nodeName(au.app.dataDir()); node != "" {
		return origin{node, chain}
	}
	for from := range au.read {
		if from.chain == chain {
			return from
		}
	}
	return origin{"", chain}
}

// readFile reads the journal of the data directory.
func (au *auditor) readFile(ctx context.Context) error {
	r, err := journal.OpenReader(au.app.dataDir())
	if err != nil {
		return err
	}
	defer r.Close()
	node := nodeName(au.app.dataDir())
	take := func(l ferrule.JournalLines) error {
		l.Node = node
		return au.take(l)
	}
	err = r.Read(ctx, false, take)
	if err := au.drain(ctx, err); err != nil || !au.filter.follow {
		return err
	}
	return r.Read(ctx, true, take)
}

// take takes records that were read.
func (au *auditor) take(l ferrule.JournalLines) error {
	from := origin{l.Node, l.Chain}
	for e, err := range journal.Entries(l.Lines) {
		switch {
		case err != nil:
			au.damage(l, err)
		case au.told != nil && e.Seq <= au.told[from], !au.filter.has(e):
		default:
			if err := au.hold.add(record{l.Node, l.Chain, e}); err != nil {
				return err
			}
		}
	}
	au.read[from] = max(au.read[from], l.Last)
	return nil
}

// damage counts a line that is no record. Who follows is told of the first at once.
func (au *auditor) damage(l ferrule.JournalLines, err error) {
	if au.damaged++; au.damaged > 1 {
		return
	}
	au.first = fmt.Errorf("one of records %d to %d of chain %s: %w", l.First, l.Last, l.Chain, err)
	if au.filter.follow {
		fmt.Fprintf(au.app.stderr, "a line is damaged, %v; `ferrule audit verify` tells more\n", au.first)
	}
}

// show prints a record.
func (au *auditor) show(r record) error {
	if au.width > 0 {
		au.width = max(au.width, len(r.Node))
	}
	return au.app.printRecord(r, au.width)
}
