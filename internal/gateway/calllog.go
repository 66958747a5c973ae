package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/measure/plot"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// callLog finds the calls of a device in the journals: this node's, and the copies of
// the other nodes' journals.
type callLog struct {
	data   string // data directory of this node
	others func(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error
}

// callLog returns the calls in the journals of all nodes.
func (g *Gateway) callLog() callLog {
	calls := callLog{data: g.parts.Data}
	if all := g.Cluster.Journals(); all != nil {
		calls.others = all.Read
	}
	return calls
}

// Limits of a search.
const (
	callLogBytes = 32 << 20 // of this node's journal, from its end
	callLogTime  = 2 * time.Second
)

// errEnough ends a search: all further records are too new.
var errEnough = errors.New("enough was read")

// Calls implements builtin.CallLog. If it returns an error, the calls found so far are
// still returned.
func (d callLog) Calls(ctx context.Context, device string, from, to time.Time) ([]ferrule.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, callLogTime)
	defer cancel()
	p := &deviceCalls{device: device, to: to.Add(pipeline.MaxDeadline), mark: ferrule.AppendString([]byte(`"device":`), device), calls: make(map[string]*ferrule.Entry)}
	err := d.readOwn(ctx, from, p)
	if d.others != nil {
		if failed := d.others(ctx, ferrule.JournalQuery{Since: from.Add(-journal.ClockSkew)}, p.take); failed != nil && !errors.Is(failed, errEnough) {
			err = errors.Join(err, fmt.Errorf("calls made through other nodes cannot be read: %w", failed))
		}
	}
	return p.between(from, to), err
}

// readOwn reads the journal of this node.
func (d callLog) readOwn(ctx context.Context, from time.Time, p *deviceCalls) error {
	r, err := journal.OpenReader(d.data)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.SkipTo(from.Add(-pipeline.MaxDeadline), callLogBytes); err != nil { // a call that ended in the range may have begun before it
		return err
	}
	if err := r.Read(ctx, false, p.take); !errors.Is(err, errEnough) {
		return err
	}
	return nil
}

// deviceCalls collects the calls of one device.
type deviceCalls struct {
	device string
	to     time.Time // records after this are not needed
	mark   []byte    // part of each record of the device
	calls  map[string]*ferrule.Entry
}

// take reads lines of a journal.
func (p *deviceCalls) take(l ferrule.JournalLines) error {
	for line := range bytes.Lines(l.Lines) {
		if !bytes.Contains(line, p.mark) {
			continue
		}
		for e, err := range journal.Entries(line) {
			if err == nil && e.Time.After(p.to) {
				return errEnough
			}
			if err == nil && e.Device == p.device && e.Operation == ferrule.CallTool {
				p.add(e)
			}
		}
	}
	return nil
}

// add merges a record into its call.
func (p *deviceCalls) add(e ferrule.Entry) {
	switch known := p.calls[e.Call]; {
	case known != nil && e.Phase == ferrule.Outcome:
		known.Code, known.MayHaveRun = e.Code, e.MayHaveRun
	case known == nil && e.Phase == ferrule.Outcome:
		e.Time = e.Time.Add(-time.Duration(e.Took)) // when the call was made
		p.calls[e.Call] = &e
	case known == nil && e.Phase == ferrule.Intent:
		e.Code, e.MayHaveRun = ferrule.Unanswered, true // unless its outcome follows
		p.calls[e.Call] = &e
	}
}

// between returns the calls of a time range that ran or may have run, in order of time.
// If there are too many, it prefers calls that may have changed something, then the
// newest.
func (p *deviceCalls) between(from, to time.Time) (all []ferrule.Entry) {
	for _, e := range p.calls {
		if e.Time.Before(from) || e.Time.After(to) || e.Code != "" && !e.MayHaveRun {
			continue
		}
		all = append(all, *e)
	}
	byTime := func(a, b ferrule.Entry) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Call, b.Call)) }
	slices.SortFunc(all, func(a, b ferrule.Entry) int {
		if changes := a.Phase == ferrule.Intent; changes != (b.Phase == ferrule.Intent) {
			if changes {
				return -1
			}
			return 1
		}
		return -byTime(a, b)
	})
	all = all[:min(len(all), plot.MaxCalls)]
	slices.SortFunc(all, byTime)
	return all
}
