package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// answer is a JSON-RPC answer.
type answer struct {
	id     int
	isInt  bool   // the ID is an integer
	idText string // as received
	result json.RawMessage
	err    *jsonrpc.Error
	raw    string
}

// mangled reports whether the device could not parse a request and does not know its ID.
func (a answer) mangled() bool {
	return a.err != nil && (a.isInt && a.id == 0 || a.idText == "") &&
		(a.err.Code == jsonrpc.CodeParseError || a.err.Code == jsonrpc.CodeInvalidRequest)
}

// received is one line from a device, or the fact that one was too long.
type received struct {
	at            time.Time
	first         time.Time // when its first bytes arrived
	reads         int       // in how many pieces it arrived
	raw           string
	answers       []answer
	before, after string // other text in the line of an answer
	broken        bool   // looks like an answer, but is not valid JSON
	tooLong       bool
}

// tryCost is the fixed cost of trying to parse an object, in bytes.
const tryCost = 512

// parseLine finds the answers in a line, and the text around them. It tries each place where
// an object could begin, and stops when that has cost about as much as reading the line
// twice.
func parseLine(line []byte) (r received) {
	r.raw = string(line)
	if a, ok := parseAnswer(line); ok {
		r.answers = []answer{a}
		return r
	}
	rest, behind := line, 0 // behind is the end of the last answer
	for budget := 2*len(line) + 16*tryCost; budget > 0 && bytes.Contains(rest, []byte(`"id"`)); budget -= tryCost {
		start := objectStart(rest)
		if start < 0 {
			break
		}
		rest = rest[start:]
		dec := json.NewDecoder(bytes.NewReader(rest))
		var object json.RawMessage
		if err := dec.Decode(&object); err != nil {
			read := len(rest)
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) {
				read = min(read, int(syntax.Offset))
			}
			budget -= read
			rest = rest[1:]
			continue
		}
		begin := len(line) - len(rest)
		rest = rest[len(object):]
		budget -= len(object)
		a, ok := parseAnswer(object)
		if !ok {
			continue
		}
		r.before += string(line[behind:begin])
		behind = len(line) - len(rest)
		r.answers = append(r.answers, a)
	}
	if len(r.answers) > 0 {
		r.after = string(line[behind:])
	}
	r.before, r.after = string(bytes.TrimSpace([]byte(r.before))), string(bytes.TrimSpace([]byte(r.after)))
	r.broken = len(r.answers) == 0 && looksLikeAnswer(line)
	return r
}

// looksLikeAnswer reports whether a line that is not valid JSON was meant to be an answer.
func looksLikeAnswer(line []byte) bool {
	return !json.Valid(line) && (bytes.Contains(line, []byte(`"result":`)) || bytes.Contains(line, []byte(`"error":{`)) || bytes.Contains(line, []byte(`"jsonrpc":`)))
}

// objectStart returns the index of the first brace that is followed by a quote, ignoring
// spaces; -1 if there is none.
func objectStart(line []byte) int {
	for i := 0; i < len(line); i++ {
		if line[i] == '{' && bytes.HasPrefix(bytes.TrimLeft(line[i+1:], " \t"), []byte{'"'}) {
			return i
		}
	}
	return -1
}

// parseAnswer parses one JSON object.
func parseAnswer(data []byte) (answer, bool) {
	m, ok := jsonrpc.Decode(data)
	if !ok || m.Method != "" || m.Result == nil && m.Error == nil {
		return answer{}, false
	}
	a := answer{idText: string(m.ID), result: m.Result, err: m.Error, raw: string(data)}
	a.id, a.isInt = m.IntID(strconv.IntSize)
	return a, true
}

// stream is a byte stream to a device. A goroutine reads it into lines.
type stream struct {
	conn transport.Conn
	in   chan received // closed when reading has ended
	done chan struct{} // closed by close
	ends sync.WaitGroup

	mu    sync.Mutex
	stats streamStats
	err   error // why reading has ended
}

// streamStats counts what has arrived.
type streamStats struct {
	bytes int // all
	noise int // in lines without an answer
	lines int // without an answer
	open  int // since the last line end
	tail  []byte
}

// maxTail is how much of an unfinished line is kept.
const maxTail = 512

func newStream(conn transport.Conn) *stream {
	s := &stream{conn: conn, in: make(chan received, 64), done: make(chan struct{})}
	s.ends.Go(s.read)
	return s
}

// counter is the reader below the line reader. It belongs to the goroutine that reads.
type counter struct {
	stream *stream
	reads  int
	first  time.Time // of the reads that are not used up
	last   time.Time
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.stream.conn.Read(p)
	if n > 0 {
		c.reads++
		c.last = time.Now()
		if c.first.IsZero() {
			c.first = c.last
		}
		c.stream.count(p[:n])
	}
	return n, err
}

func (s *stream) count(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.bytes += len(data)
	if i := bytes.LastIndexByte(data, '\n'); i >= 0 {
		s.stats.open, s.stats.tail = 0, nil
		data = data[i+1:]
	}
	s.stats.open += len(data)
	s.stats.tail = append(s.stats.tail, data[:min(len(data), maxTail-len(s.stats.tail))]...)
}

// read passes on lines until the connection ends. It waits until an answer is taken, but
// drops noise that nobody takes: it is counted.
func (s *stream) read() {
	defer close(s.in)
	c := &counter{stream: s}
	lines := transport.NewLines(c, transport.DefaultLimits())
	for {
		line, err := lines.Next()
		tooLong := errors.Is(err, transport.ErrTooLong)
		if err != nil && !tooLong {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			return
		}
		r := received{tooLong: true}
		if !tooLong {
			r = parseLine(line)
		}
		r.at, r.first, r.reads = c.last, c.first, c.reads
		c.reads, c.first = 0, time.Time{}
		if len(r.answers) == 0 {
			s.mu.Lock()
			s.stats.noise += len(line)
			s.stats.lines++
			s.mu.Unlock()
			if !r.broken && !tooLong {
				r.raw = r.raw[:min(len(r.raw), maxTail)]
				select {
				case s.in <- r:
				default:
				}
				continue
			}
		}
		select {
		case s.in <- r:
		case <-s.done:
			return
		}
	}
}

// counts returns what has arrived, and why reading has ended.
func (s *stream) counts() (streamStats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.tail = bytes.Clone(stats.tail)
	return stats, s.err
}

// maxWrite bounds the time of one write.
const maxWrite = 3 * time.Second

// write sends bytes in one write.
func (s *stream) write(data string) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(maxWrite)); err != nil {
		return err
	}
	_, err := s.conn.Write([]byte(data))
	return err
}

// close closes the connection and waits for the reader.
func (s *stream) close() {
	close(s.done)
	s.conn.Close()
	for range s.in { // the reader may wait to hand over an answer
	}
	s.ends.Wait()
}
