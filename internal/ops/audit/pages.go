package audit

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
)

// Limits of a page. A query that finds little ends early and says how far it came.
const (
	pageBytes = 24 << 20
	pageTime  = 2 * time.Second
	// maxCallTime is the longest that a call takes: the pipeline ends it.
	maxCallTime = 10 * time.Minute
	// aheadBytes limits the search for outcomes that are newer than the page.
	aheadBytes = 32 << 20
	// maxWindow is how far the journals of other nodes are read at a time, and maxWindowRecords
	// how many records of it are kept.
	maxWindow        = 24 * time.Hour
	maxWindowRecords = 8 << 10
)

// PageQuery selects calls.
type PageQuery struct {
	Before Cursor
	// Since and Until limit when a call ended; zero is unlimited.
	Since, Until time.Time
	Limit        int
	// Match is called once with each call. Its steps may not be known yet.
	Match func(*Call) bool
}

// Page is a page of calls, the newest first.
type Page struct {
	Calls []Call
	// Next is where the next page begins. More reports whether there may be one.
	Next Cursor
	More bool
	// Reached is how far back the page has searched.
	Reached time.Time
}

// pager reads one page.
type pager struct {
	*CallLog
	query   PageQuery
	join    *backward
	at      Cursor
	reached time.Time
	bytes   int
	oldest  bool // all records were read
}

// Page returns the calls before a cursor. It reads from memory as far as it can, and then
// from the journals.
func (c *CallLog) Page(ctx context.Context, q PageQuery) (Page, error) {
	c.load()
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	p := &pager{CallLog: c, query: q, join: newBackward(q.Limit, q.Match), at: q.Before}
	err := p.startUntil()
	if err == nil {
		p.readRecent()
		err = p.readFiles(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errEnough) {
		err = nil
	}
	if err == nil && (q.Before != (Cursor{}) || !q.Until.IsZero()) {
		err = p.dropEnded(ctx)
	}
	return Page{Calls: p.join.found(), Next: p.at, More: !p.oldest, Reached: p.reached}, err
}

// startUntil begins at the end of the time range, if that is before the cursor.
func (p *pager) startUntil() error {
	if p.query.Until.IsZero() || !p.at.Time.IsZero() && p.at.Time.Before(p.query.Until) {
		return nil
	}
	r, err := journal.OpenReader(p.parts.Data)
	if err != nil {
		return err
	}
	defer r.Close()
	seq, err := r.SeqAt(p.query.Until)
	p.at = Cursor{seq, p.query.Until}
	return err
}

// take handles the next older record, and reports whether the page is complete.
func (p *pager) take(r Record) bool {
	if !p.query.Since.IsZero() && r.Time.Before(p.query.Since) {
		p.oldest = true
		return true
	}
	p.at.pass(&r)
	p.reached = r.Time
	p.join.add(r)
	return p.join.full()
}

// errEnough ends the reading of a page.
var errEnough = errors.New("enough was read")

// readRecent reads from memory, if that has all records since the cursor.
func (p *pager) readRecent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.Seq != 0 && (p.own == 0 || p.at.Seq < p.own) {
		return
	}
	for i := len(p.recent) - 1; i >= 0; i-- {
		if r := &p.recent[i]; p.at.has(r) && p.take(*r) {
			return
		}
	}
	if p.parts.Others != nil && !p.since.IsZero() && (p.at.Time.IsZero() || p.since.Before(p.at.Time)) {
		p.at.Time = p.since
	}
}

// readFiles continues with the journals.
func (p *pager) readFiles(ctx context.Context) error {
	if p.join.full() || p.oldest {
		return nil
	}
	r, err := journal.OpenReader(p.parts.Data)
	if err != nil {
		return err
	}
	defer r.Close()
	own := &ownRecords{reader: r, node: p.parts.Node, before: p.at.Seq}
	others := &otherRecords{read: p.parts.Others, node: p.parts.Node, before: p.at.Time}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		mine, err := own.peek()
		if err != nil {
			return err
		}
		theirs, err := others.peek(ctx, mine, p.query.Since)
		if err != nil {
			return err
		}
		next := mine
		if mine == nil || theirs != nil && theirs.Time.After(mine.Time) {
			next = theirs
		}
		switch next {
		case nil:
			p.oldest = true
			return nil
		case mine:
			own.next()
		default:
			others.next()
		}
		if p.take(*next) {
			return nil
		}
		if p.bytes += weight(*next); p.bytes > pageBytes {
			return errEnough
		}
	}
}

// ownRecords reads the journal of this node, the newest record first.
type ownRecords struct {
	reader  *journal.Reader
	node    string
	before  uint64
	records []Record // oldest first
	ended   bool
}

// peek returns the next record, or nil after the oldest.
func (o *ownRecords) peek() (*Record, error) {
	for len(o.records) == 0 && !o.ended {
		l, err := o.reader.Before(o.before, chunk)
		if err != nil {
			return nil, err
		}
		if len(l.Lines) == 0 || l.First == 0 || o.before > 0 && l.First >= o.before {
			o.ended = true
			break
		}
		o.before, l.Node = l.First, o.node
		o.records = parse(l)
		o.ended = l.First == 1
	}
	if len(o.records) == 0 {
		return nil, nil
	}
	r := &o.records[len(o.records)-1]
	r.own = true
	return r, nil
}

func (o *ownRecords) next() { o.records = o.records[:len(o.records)-1] }

// otherRecords reads the journals of other nodes, the newest record first. They can be read
// forward only, so it reads a window of time, and a longer one before it.
type otherRecords struct {
	read    func(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error
	node    string
	before  time.Time
	window  time.Duration
	records []Record // oldest first
	ended   bool
}

// oldestJournal is how far back the journals of other nodes are searched if this node has
// no older record.
const oldestJournal = 30 * 24 * time.Hour

// peek returns the next record, or nil if there is none that is newer than one of this node.
func (o *otherRecords) peek(ctx context.Context, mine *Record, since time.Time) (*Record, error) {
	if o.read == nil {
		return nil, nil
	}
	limit := time.Now().Add(-oldestJournal)
	if mine != nil {
		limit = mine.Time
	}
	if since.After(limit) {
		limit = since
	}
	for len(o.records) == 0 && !o.ended && (o.before.IsZero() || o.before.After(limit)) {
		if err := o.readWindow(ctx); err != nil {
			return nil, err
		}
	}
	if len(o.records) == 0 {
		return nil, nil
	}
	return &o.records[len(o.records)-1], nil
}

func (o *otherRecords) next() { o.records = o.records[:len(o.records)-1] }

// readWindow reads the records of a window of time before those that were read.
func (o *otherRecords) readWindow(ctx context.Context) error {
	if o.before.IsZero() {
		o.before = time.Now().Add(journal.ClockSkew)
	}
	o.window = min(max(2*o.window, 10*time.Minute), maxWindow)
	from := o.before.Add(-o.window)
	var found []Record
	err := o.read(ctx, ferrule.JournalQuery{Since: from.Add(-journal.ClockSkew)}, func(l ferrule.JournalLines) error {
		if l.Node == o.node {
			return nil
		}
		newer := false
		for _, r := range parse(l) {
			if newer = !r.Time.Before(o.before); !newer && !r.Time.Before(from) {
				found = append(found, r)
			}
		}
		if len(found) > 2*maxWindowRecords {
			found = newest(found)
		}
		if newer && l.Lines != nil && lastTime(l).After(o.before.Add(journal.ClockSkew)) {
			return errEnough
		}
		return ctx.Err()
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	cut := len(found) > maxWindowRecords
	o.records = newest(found)
	o.before = from
	if cut {
		o.before, o.window = o.records[0].Time, 0
	}
	return nil
}

// newest returns the newest records, in order of time.
func newest(all []Record) []Record {
	slices.SortStableFunc(all, func(a, b Record) int { return a.Time.Compare(b.Time) })
	return slices.Clone(all[max(0, len(all)-maxWindowRecords):])
}

// lastTime returns the time of the last record in lines.
func lastTime(l ferrule.JournalLines) (t time.Time) {
	lines := bytes.TrimSuffix(l.Lines, []byte("\n"))
	for e, err := range journal.Entries(lines[bytes.LastIndexByte(lines, '\n')+1:]) {
		if err == nil {
			t = e.Time
		}
	}
	return t
}

// dropEnded removes calls without an outcome on this page that have one on a newer page.
func (p *pager) dropEnded(ctx context.Context) error {
	open := make(map[callKey]bool)
	for _, c := range p.join.calls {
		if c.Open() {
			open[callKey{origin{c.Node, c.Chain}, c.Record.Call}] = true
		}
	}
	if len(open) == 0 {
		return nil
	}
	ended := make(map[callKey]bool)
	note := func(l ferrule.JournalLines) {
		for _, r := range parse(l) {
			if key := (callKey{origin{r.Node, r.Chain}, r.Call}); r.Phase == ferrule.Outcome && open[key] {
				ended[key] = true
			}
		}
	}
	err := p.readAhead(ctx, open, ended, note)
	p.join.drop(func(c *Call) bool { return ended[callKey{origin{c.Node, c.Chain}, c.Record.Call}] })
	return err
}

// readAhead passes the lines after the start of the page that may have outcomes.
func (p *pager) readAhead(ctx context.Context, open, ended map[callKey]bool, note func(ferrule.JournalLines)) error {
	r, err := journal.OpenReader(p.parts.Data)
	if err != nil {
		return err
	}
	defer r.Close()
	start := max(p.query.Before.Seq, 1) - 1
	if p.query.Before.Seq == 0 {
		if start, err = r.SeqAt(p.query.Until); err != nil || start == 0 {
			return err
		}
		start--
	}
	if err := r.Skip(start); err != nil {
		return err
	}
	read, until := 0, p.query.Before.Time.Add(maxCallTime)
	if p.query.Before.Time.IsZero() {
		until = p.query.Until.Add(maxCallTime)
	}
	pass := func(l ferrule.JournalLines) error {
		read += len(l.Lines)
		for key := range open {
			if bytes.Contains(l.Lines, ferrule.AppendString([]byte(`"call":`), key.call)) {
				note(l)
				break
			}
		}
		if len(ended) == len(open) || read > aheadBytes || lastTime(l).After(until) {
			return errEnough
		}
		return ctx.Err()
	}
	err = r.Read(ctx, false, func(l ferrule.JournalLines) error {
		l.Node = p.parts.Node
		return pass(l)
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err == nil && p.parts.Others != nil && len(ended) < len(open) {
		err = p.parts.Others(ctx, ferrule.JournalQuery{Since: p.query.Before.Time.Add(-journal.ClockSkew)}, pass)
	}
	if errors.Is(err, errEnough) || errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return err
}
