package approval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/records"
)

// Binding is what an approval is for. A call that differs in any of it needs another one.
type Binding struct {
	Principal ferrule.Principal `json:"principal"`
	// Via is the node that vouches for the caller; empty for this one.
	Via       string            `json:"via,omitempty"`
	Device    string            `json:"device"`
	Kind      ferrule.Kind      `json:"kind"`
	Operation ferrule.Operation `json:"operation,omitempty"`
	Tool      string            `json:"tool"`
	// Args are canonical: members are sorted, and numbers have their digits.
	Args json.RawMessage `json:"args"`
	// Policy is the version of the policy.
	Policy string `json:"policy"`
}

// key returns a text that is different for different bindings.
func (b *Binding) key() string {
	text, err := json.Marshal(b)
	if err != nil { // Args are not JSON; no stored record has that
		return "invalid " + hash(fmt.Appendf(nil, "%#v", b))
	}
	return hash(text)
}

// Record is a request or an approval as it is stored.
type Record struct {
	ID string `json:"id"`
	Binding
	Call   string            `json:"call"` // the first call that waited
	Client ferrule.Client    `json:"client,omitzero"`
	Effect ferrule.Effect    `json:"effect"`
	Text   string            `json:"text,omitempty"` // of the tool, in the device's words
	Model  string            `json:"model,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Reason string            `json:"reason,omitempty"`
	Rule   string            `json:"rule,omitempty"`

	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	// By is who allowed it; empty while it waits.
	By       string `json:"by,omitempty"`
	Standing bool   `json:"standing,omitempty"`
	// Link is the hash of the token in the link; empty without one.
	Link string `json:"link,omitempty"`
}

// check returns an error if a record cannot be one of this package.
func (r *Record) check() error {
	var args map[string]json.RawMessage
	switch {
	case len(r.ID) != idLength || strings.Trim(r.ID, idLetters) != "":
		return errors.New("its ID is not valid")
	case r.Device == "" || r.Tool == "" || r.Principal.Role == "":
		return errors.New("it has no device, tool or principal")
	case len(r.Args) > maxArgs+1024 || json.Unmarshal(r.Args, &args) != nil || args == nil:
		return errors.New("its arguments are not valid")
	case r.Expires.Sub(r.Created) > MaxWait+max(MaxKeep, MaxStanding):
		return errors.New("it lasts too long")
	case r.Standing && r.By == "":
		return errors.New("nobody allowed it")
	}
	return nil
}

// line is a line of the file: a record, or the end of one.
type line struct {
	Record *Record `json:"record,omitempty"`
	End    string  `json:"end,omitempty"`
}

const (
	fileName = "approvals.jsonl"
	// spareLines is the number of outdated lines that do not justify a rewrite.
	spareLines = 200
	// maxFile is more than a file can have. A longer one is damaged.
	maxFile = 256 << 20
)

// store is a file with a line for each change. It must not be used concurrently.
type store struct {
	path   string
	log    *slog.Logger
	file   *os.File
	lines  int
	torn   bool // the end of the file is unknown
	record map[string][]byte
}

// openStore opens or creates the file, and returns what has not expired.
func openStore(dir string, now time.Time, log *slog.Logger) (*store, []Record, error) {
	s := &store{path: filepath.Join(dir, fileName), log: log, record: make(map[string][]byte)}
	data, err := readFile(s.path)
	if err != nil {
		return nil, nil, err
	}
	all, err := decode(data)
	if err != nil {
		// A line that cannot be read may be the end of an approval.
		log.Error("approvals: the file is damaged; all requests and approvals have ended, and callers have to call again", "err", err)
		all = nil
	}
	all = slices.DeleteFunc(all, func(r Record) bool {
		return over(now, r.Expires) || r.Created.After(now.Add(maxSkew)) // or the clock was set back
	})
	for _, r := range all {
		if s.record[r.ID], err = encode(line{Record: &r}); err != nil {
			return nil, nil, err
		}
	}
	return s, all, s.rewrite()
}

// maxSkew is how far a clock may be set back without the loss of approvals.
const maxSkew = time.Minute

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil && info.Size() > maxFile {
		return []byte("too long\n"), nil
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

func encode(l line) ([]byte, error) {
	data, err := json.Marshal(l)
	return append(data, '\n'), err
}

// decode returns the records of a file, in the order of their IDs. A last line without an
// end was being written when power failed, and counts as absent: nothing happened because
// of it. Any other line that is not valid makes the whole file invalid.
func decode(data []byte) ([]Record, error) {
	known := make(map[string]Record)
	keys := make(map[string]string)
	n := 0
	for text := range bytes.Lines(data) {
		if !bytes.HasSuffix(text, []byte("\n")) {
			break
		}
		n++
		var l line
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&l); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if dec.More() {
			return nil, fmt.Errorf("line %d has more than one value", n)
		}
		if (l.Record == nil) == (l.End == "") {
			return nil, fmt.Errorf("line %d is neither a record nor an end", n)
		}
		if l.Record == nil {
			delete(keys, keyOf(known, l.End))
			delete(known, l.End)
			continue
		}
		if err := l.Record.check(); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		key := l.Record.key()
		if before, ok := known[l.Record.ID]; ok && before.key() != key || keys[key] != "" && keys[key] != l.Record.ID {
			return nil, fmt.Errorf("line %d contradicts an earlier one", n)
		}
		known[l.Record.ID], keys[key] = *l.Record, l.Record.ID
	}
	all := make([]Record, 0, len(known))
	for _, r := range known {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Record) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

func keyOf(known map[string]Record, id string) string {
	r, ok := known[id]
	if !ok {
		return ""
	}
	return r.key()
}

// put stores a record. It is on disk when put returns nil.
func (s *store) put(r Record) error {
	text, err := encode(line{Record: &r})
	if err != nil {
		return err
	}
	before, had := s.record[r.ID]
	s.record[r.ID] = text
	if err := s.write(text, true); err != nil {
		if delete(s.record, r.ID); had {
			s.record[r.ID] = before
		}
		return err
	}
	return nil
}

// drop ends a record. If it is durable, it is on disk when drop returns nil; if it is not
// and fails, it will be with the next change.
func (s *store) drop(id string, durable bool) error {
	before, had := s.record[id]
	if !had {
		return nil
	}
	text, err := encode(line{End: id})
	if err != nil {
		return err
	}
	delete(s.record, id)
	err = s.write(text, durable)
	if err != nil && durable {
		s.record[id] = before
	}
	return err
}

// write appends a line. It rewrites the file instead if most of it is outdated, or its
// last line may be incomplete.
func (s *store) write(text []byte, durable bool) error {
	if s.torn || s.lines > 2*len(s.record)+spareLines {
		return s.rewrite()
	}
	_, err := s.file.Write(text)
	if err == nil && durable {
		err = s.file.Sync()
	}
	if err != nil {
		s.torn = true
		return err
	}
	s.lines++
	return nil
}

// rewrite replaces the file by one with the present records.
func (s *store) rewrite() error {
	s.torn = true
	if s.file != nil {
		s.file.Close() // Windows cannot replace an open file
		s.file = nil
	}
	if err := replaceFile(s.path, slices.Concat(sorted(s.record)...)); err != nil {
		return err
	}
	file, err := os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	s.file, s.lines, s.torn = file, len(s.record), false
	return nil
}

func sorted(records map[string][]byte) (all [][]byte) {
	for _, text := range records {
		all = append(all, text)
	}
	slices.SortFunc(all, bytes.Compare)
	return all
}

// replaceFile replaces a file atomically. It is on disk when replaceFile returns nil.
func replaceFile(path string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
		return err
	}
	return records.SyncDir(filepath.Dir(path))
}

func (s *store) close() error {
	if s.file == nil {
		return nil
	}
	return errors.Join(s.file.Sync(), s.file.Close())
}
