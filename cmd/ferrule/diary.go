package main

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

// diary tells which calls were made to devices, as the journals have it: this node's, and
// those of other nodes as far as they were copied.
type diary struct {
	data   string // the directory of this node's
	others func(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error
}

// The bounds of looking into journals.
const (
	diaryBytes = 32 << 20 // of this node's journal, the last of it
	diaryTime  = 2 * time.Second
)

// errEnough tells that what follows is of no interest.
var errEnough = errors.New("enough was read")

// Calls implements toolbox.Diary. What was found is returned with the error, if there is
// one.
func (d diary) Calls(ctx context.Context, device string, from, to time.Time) ([]ferrule.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, diaryTime)
	defer cancel()
	p := &pageOf{device: device, to: to.Add(pipeline.MaxDeadline), mark: ferrule.AppendString([]byte(`"device":`), device), calls: make(map[string]*ferrule.Entry)}
	err := d.readOwn(ctx, from, p)
	if d.others != nil {
		if failed := d.others(ctx, ferrule.JournalQuery{Since: from.Add(-skew)}, p.take); failed != nil && !errors.Is(failed, errEnough) {
			err = errors.Join(err, fmt.Errorf("those that were made by way of other nodes cannot be read: %w", failed))
		}
	}
	return p.made(from, to), err
}

// readOwn reads the journal in the data directory.
func (d diary) readOwn(ctx context.Context, from time.Time, p *pageOf) error {
	r, err := journal.OpenReader(d.data)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.SkipTo(from.Add(-pipeline.MaxDeadline), diaryBytes); err != nil { // a call that ended in the time may have begun before
		return err
	}
	if err := r.Read(ctx, false, p.take); !errors.Is(err, errEnough) {
		return err
	}
	return nil
}

// pageOf is the calls to one device.
type pageOf struct {
	device string
	to     time.Time // what is recorded later is of no interest
	mark   []byte    // what stands in each record of the device
	calls  map[string]*ferrule.Entry
}

// take takes lines of a journal.
func (p *pageOf) take(l ferrule.JournalLines) error {
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

// add adds a record to what is known of its call.
func (p *pageOf) add(e ferrule.Entry) {
	switch known := p.calls[e.Call]; {
	case known != nil && e.Phase == ferrule.Outcome:
		known.Code, known.MayHaveRun = e.Code, e.MayHaveRun
	case known == nil && e.Phase == ferrule.Outcome:
		e.Time = e.Time.Add(-time.Duration(e.Took)) // when it was made
		p.calls[e.Call] = &e
	case known == nil && e.Phase == ferrule.Intent:
		e.Code, e.MayHaveRun = ferrule.Unanswered, true // until its outcome is found
		p.calls[e.Call] = &e
	}
}

// made are the calls that were made in a time, by time: what did not run is left out. Of
// too many, those are told that may have changed something, and the last of them.
func (p *pageOf) made(from, to time.Time) (all []ferrule.Entry) {
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
