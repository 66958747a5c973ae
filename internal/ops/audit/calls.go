package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
)

// Limits of a CallLog.
const (
	// maxRecent and maxRecentBytes limit the records in memory.
	maxRecent      = 16 << 10
	maxRecentBytes = 12 << 20
	// firstRecent is how much of the journal is read at the start, in bytes.
	firstRecent = 2 << 20
	// firstTime is how far back the journals of other nodes are read, and firstWait how long
	// the first query waits for them.
	firstTime, firstWait = time.Hour, 2 * time.Second
	// chunk is how much of a journal is read at a time, in bytes.
	chunk = 256 << 10
	// maxBehind is how many times Run waits for records that are not synced yet.
	maxBehind = 600
	// maxRetry is how long a reader of other nodes' journals waits after an error.
	maxRetry = 30 * time.Second
)

// CallLogParts is what a CallLog is built from.
type CallLogParts struct {
	Data string // data directory
	Node string // name of this node; empty if it is alone
	// Lines waits for records of this node: journal.Journal.Lines.
	Lines func(ctx context.Context, after uint64, limit int) (ferrule.JournalLines, error)
	// Others reads the journals of all nodes; nil if this node is alone.
	Others func(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error
	Warn   func(text string, err error)
}

// CallLog finds calls, the newest first. It keeps the newest records of all nodes in memory,
// and reads older ones backward from the journals as far as a query needs them. It reads nothing
// before the first query: most are never asked.
type CallLog struct {
	parts CallLogParts
	first sync.Once
	asked chan struct{} // closed by the first query

	mu     sync.Mutex
	recent []Record // oldest first
	size   int      // estimated bytes of recent
	// own is the number of the oldest record of this node in recent, and last that of the
	// newest; 0 before the journal was read.
	own, last uint64
	chain     string
	latest    map[origin]uint64 // newest record of each chain
	since     time.Time         // records of other nodes in recent are newer
	watchers  map[*func([]string)]bool
}

// NewCallLog returns a CallLog. Run keeps it current.
func NewCallLog(parts CallLogParts) *CallLog {
	return &CallLog{parts: parts, asked: make(chan struct{}), latest: make(map[origin]uint64), watchers: make(map[*func([]string)]bool)}
}

// Run follows the journals from the first query on, until ctx ends.
func (c *CallLog) Run(ctx context.Context) error {
	select {
	case <-c.asked:
	case <-ctx.Done():
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	if c.parts.Others != nil {
		wg.Go(func() { c.followOthers(ctx) })
	}
	for behind := 0; ; {
		c.mu.Lock()
		after := c.last
		c.mu.Unlock()
		l, err := c.parts.Lines(ctx, after, chunk)
		switch {
		case errors.Is(err, os.ErrClosed):
			<-ctx.Done()
			return nil
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, journal.ErrBehind) && behind < maxBehind: // load has read what is not synced yet
			behind++
			sleep(ctx, 100*time.Millisecond)
		case errors.Is(err, journal.ErrBehind):
			c.mu.Lock()
			c.recent, c.size, c.own, c.last, behind = nil, 0, 0, 0, 0
			c.mu.Unlock()
		case err != nil:
			c.parts.Warn("new calls cannot be read", err)
			sleep(ctx, time.Second)
		default:
			behind = 0
			c.add(l, true)
		}
	}
}

// load reads the newest records of all nodes at the first query.
func (c *CallLog) load() {
	c.first.Do(func() {
		if err := c.readNewest(); err != nil {
			c.parts.Warn("the newest calls cannot be read", err)
		}
		if c.parts.Others != nil {
			ctx, cancel := context.WithTimeout(context.Background(), firstWait)
			defer cancel()
			since := time.Now().Add(-firstTime)
			c.mu.Lock()
			c.since = since
			c.mu.Unlock()
			c.readOthers(ctx, ferrule.JournalQuery{Since: since}) // Run continues, also after an error
		}
		close(c.asked)
	})
}

func (c *CallLog) readNewest() error {
	r, err := journal.OpenReader(c.parts.Data)
	if err != nil {
		return err
	}
	defer r.Close()
	l, err := r.Before(0, firstRecent)
	if err == nil && len(l.Lines) > 0 {
		c.add(l, true)
	}
	return err
}

// readOthers keeps the records of other nodes.
func (c *CallLog) readOthers(ctx context.Context, q ferrule.JournalQuery) error {
	return c.parts.Others(ctx, q, func(l ferrule.JournalLines) error {
		if l.Node != c.parts.Node {
			c.add(l, false)
		}
		return nil
	})
}

// followOthers follows the journals of other nodes.
func (c *CallLog) followOthers(ctx context.Context) {
	since := time.Now().Add(-firstTime) // what was read before is skipped
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, maxRetry) {
		err := c.readOthers(ctx, ferrule.JournalQuery{Since: since, Follow: true})
		if err != nil && ctx.Err() == nil {
			c.parts.Warn("the journals of other nodes cannot be followed", err)
		}
		sleep(ctx, wait)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// add keeps new records, and calls the watchers.
func (c *CallLog) add(l ferrule.JournalLines, own bool) {
	records := parse(l)
	if own {
		for i := range records {
			records[i].Node, records[i].own = c.parts.Node, true
		}
	}
	c.mu.Lock()
	if own {
		c.chain, c.last = l.Chain, l.Last
	}
	var devices []string
	from, sorted := origin{"", l.Chain}, true
	for _, r := range records {
		from.node = r.Node
		if !own && r.Seq <= c.latest[from] { // a new reader begins earlier
			continue
		}
		c.latest[from] = max(c.latest[from], r.Seq)
		if n := len(c.recent); n > 0 && c.recent[n-1].Time.After(r.Time) {
			sorted = false
		}
		c.recent = append(c.recent, r)
		c.size += weight(r)
		devices = append(devices, r.Device)
	}
	if c.parts.Others != nil && !sorted {
		slices.SortStableFunc(c.recent, func(a, b Record) int { return a.Time.Compare(b.Time) })
	}
	c.trim()
	watchers := make([]func([]string), 0, len(c.watchers))
	for fn := range c.watchers {
		watchers = append(watchers, *fn)
	}
	c.mu.Unlock()
	slices.Sort(devices)
	devices = slices.Compact(devices)
	for _, fn := range watchers {
		fn(devices)
	}
}

// trim drops the oldest records if there are too many: rather many at once than one each
// time. It is called with mu held.
func (c *CallLog) trim() {
	n := 0
	full := len(c.recent) > maxRecent+maxRecent/4 || c.size > maxRecentBytes+maxRecentBytes/4
	for ; full && len(c.recent)-n > maxRecent || full && c.size > maxRecentBytes; n++ {
		c.size -= weight(c.recent[n])
		if !c.recent[n].own {
			c.since = c.recent[n].Time
		}
	}
	if n > 0 {
		c.recent = slices.Clone(c.recent[n:]) // frees what was dropped
	}
	c.own = 0
	for i := range c.recent {
		if c.recent[i].own {
			c.own = c.recent[i].Seq
			break
		}
	}
}

// Watch calls fn with the devices that have new records after the first query, until stop is
// called. fn must not block, and must not query.
func (c *CallLog) Watch(fn func(devices []string)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers[&fn] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, &fn)
	}
}

// Newest returns the number of the newest record of this node, and its chain.
func (c *CallLog) Newest() (chain string, seq uint64) {
	c.load()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.chain, c.last
}

// Recent returns the newest calls that match, from memory alone. The newest is first.
func (c *CallLog) Recent(limit int, match func(*Call) bool) []Call {
	c.load()
	j := newBackward(limit, match)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.recent) - 1; i >= 0 && !j.full(); i-- {
		j.add(c.recent[i])
	}
	return j.found()
}

// Decisions returns the newest answers to requests for approval that match, and requests that
// ended without one, from memory alone. The newest is first.
func (c *CallLog) Decisions(limit int, match func(*Call) bool) (all []Call) {
	c.load()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.recent) - 1; i >= 0 && len(all) < limit; i-- {
		call := Call{Record: c.recent[i]}
		if isDecision(&call.Record) && match(&call) {
			all = append(all, call)
		}
	}
	return all
}

// Cursor is a position between records: it is before the record of this node with the
// number Seq, and before records of other nodes that are as new as Time. The zero value is
// the end.
type Cursor struct {
	Seq  uint64
	Time time.Time
}

func (c Cursor) String() string {
	if c == (Cursor{}) {
		return ""
	}
	return fmt.Sprintf("%d.%d", c.Seq, c.Time.UnixNano())
}

// ParseCursor parses the text of a Cursor.
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	var seq uint64
	var nanos int64
	if n, err := fmt.Sscanf(text, "%d.%d", &seq, &nanos); n != 2 || err != nil || fmt.Sprintf("%d.%d", seq, nanos) != text {
		return Cursor{}, fmt.Errorf("must be the key of a page, got %q", ferrule.Clean(text, ferrule.MaxWord))
	}
	return Cursor{seq, time.Unix(0, nanos)}, nil
}

// has reports whether a record is before the cursor.
func (c Cursor) has(r *Record) bool {
	switch {
	case c == (Cursor{}):
		return true
	case r.own:
		return c.Seq == 0 || r.Seq < c.Seq
	}
	return r.Time.Before(c.Time)
}

// pass moves the cursor before a record.
func (c *Cursor) pass(r *Record) {
	if c.Time.IsZero() || r.Time.Before(c.Time) {
		c.Time = r.Time
	}
	if r.own {
		c.Seq = r.Seq
	}
}

// Cursor returns the position before a record.
func (r *Record) Cursor() (c Cursor) {
	c.pass(r)
	return c
}

// After returns a position shortly after c, so that a page from there has the record at c.
func (c Cursor) After() Cursor {
	if c == (Cursor{}) {
		return c
	}
	if c.Seq > 0 {
		c.Seq++
	}
	c.Time = c.Time.Add(1)
	return c
}
