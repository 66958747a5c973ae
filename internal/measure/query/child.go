package query

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/libc"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Serve is the child: it reads one question from in and writes the answer to out. If
// nobody waits for it any more, it ends the process.
func Serve(in io.Reader, out io.Writer) error {
	unbounded := limitProcess()
	reader := bufio.NewReaderSize(in, 64<<10)
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("reading the question: %w", err)
	}
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return fmt.Errorf("reading the question: %w", err)
	}
	go func() {
		reader.ReadByte() // nothing comes: it is the end
		os.Exit(1)
	}()
	if unbounded != nil {
		return json.NewEncoder(out).Encode(reply{Error: ferrule.Errorf(ferrule.Internal, "a process for the question cannot be bounded: %w", unbounded)})
	}
	r, err := runQuery(asked)
	if err != nil {
		r = &reply{Error: asError(err)}
	}
	return json.NewEncoder(out).Encode(r)
}

// limits are what SQLite may be asked for: less than it can do, and more than anybody
// needs who wants to know something.
var limits = map[int]int{
	sqlite3.SQLITE_LIMIT_LENGTH:              256 << 10,
	sqlite3.SQLITE_LIMIT_SQL_LENGTH:          MaxText + 1,
	sqlite3.SQLITE_LIMIT_COLUMN:              64,
	sqlite3.SQLITE_LIMIT_EXPR_DEPTH:          100,
	sqlite3.SQLITE_LIMIT_COMPOUND_SELECT:     20,
	sqlite3.SQLITE_LIMIT_VDBE_OP:             50_000,
	sqlite3.SQLITE_LIMIT_FUNCTION_ARG:        20,
	sqlite3.SQLITE_LIMIT_ATTACHED:            0,
	sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
	sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER:     1,
	sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH:       1,
	sqlite3.SQLITE_LIMIT_WORKER_THREADS:      0,
}

// answer answers a question.
func runQuery(asked request) (*reply, error) {
	ctx := context.Background()
	if err := countMemory(); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", address(asked.Path))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("opening what was measured: %w", err)
	}
	defer conn.Close()
	for id, most := range limits {
		if _, err := sqlite.Limit(conn, id, most); err != nil {
			return nil, err
		}
	}
	rows, err := conn.QueryContext(ctx, asked.Text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return read(rows, asked.Rows)
}

// address is the file, to be read only. What is sorted stays in memory, of which there
// is little.
func address(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") { // C:/…
		path = "/" + path
	}
	pragmas := url.Values{"mode": {"ro"}, "_defensive": {"1"}, "_pragma": {
		fmt.Sprintf("hard_heap_limit(%d)", maxHeap), "busy_timeout(1000)", "temp_store(2)", "cache_size(-1024)", "mmap_size(0)",
		"trusted_schema(0)", "query_only(1)",
	}}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: pragmas.Encode()}).String()
}

// countMemory has SQLite count what it takes, without which it keeps no limit. It is
// built so that it does not.
func countMemory() error {
	tls := libc.NewTLS()
	defer tls.Close()
	on := libc.NewVaList(int32(1))
	defer libc.Xfree(tls, on)
	if rc := sqlite3.Xsqlite3_config(tls, sqlite3.SQLITE_CONFIG_MEMSTATUS, on); rc != sqlite3.SQLITE_OK {
		return fmt.Errorf("SQLite does not count its memory: code %d", rc)
	}
	return nil
}

// read reads as many rows as are wanted and fit.
func read(rows *sql.Rows, most int) (*reply, error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	r := &reply{Columns: make([]string, len(columns)), Rows: []json.RawMessage{}}
	for i, name := range columns {
		r.Columns[i] = ferrule.Clean(name, ferrule.MaxWord)
	}
	values, places := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		places[i] = &values[i]
	}
	for size := 0; rows.Next(); {
		if len(r.Rows) == most {
			r.More = true
			return r, nil
		}
		if err := rows.Scan(places...); err != nil {
			return nil, err
		}
		row, err := encode(values)
		if err != nil {
			return nil, err
		}
		if size += len(row); size > maxAnswer {
			if len(r.Rows) == 0 {
				return nil, ferrule.Errorf(ferrule.Limited, "a row has more than %d bytes", maxAnswer).WithHint(narrowHint)
			}
			r.More = true
			return r, nil
		}
		r.Rows = append(r.Rows, row)
	}
	return r, rows.Err()
}

// encode writes a row as a JSON array. What JSON has no word for is text.
func encode(values []any) (json.RawMessage, error) {
	cells := make([]any, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case float64:
			cells[i] = v
			if math.IsInf(v, 0) || math.IsNaN(v) {
				cells[i] = fmt.Sprint(v)
			}
		case []byte:
			cells[i] = "x'" + hex.EncodeToString(v) + "'"
		case string:
			cells[i] = strings.ToValidUTF8(v, "\ufffd")
		case time.Time:
			cells[i] = v.Format(time.RFC3339Nano)
		default:
			cells[i] = v
		}
	}
	return json.Marshal(cells)
}

// asError tells what is wrong with a question in words that help to ask a better one.
func asError(err error) *ferrule.Error {
	var known *ferrule.Error
	if errors.As(err, &known) {
		return known
	}
	var said *sqlite.Error
	if !errors.As(err, &said) {
		return ferrule.Errorf(ferrule.Invalid, "the question cannot be answered: %s", ferrule.Clean(err.Error(), ferrule.MaxText)).WithHint(tablesHint)
	}
	switch said.Code() & 0xff {
	case sqlite3.SQLITE_NOMEM:
		return ferrule.Errorf(ferrule.Limited, "the question needs more than %d MiB of memory", maxHeap>>20).WithHint(narrowHint)
	case sqlite3.SQLITE_READONLY:
		return ferrule.Errorf(ferrule.Denied, "what was measured can be read, and not changed")
	case sqlite3.SQLITE_TOOBIG:
		return ferrule.Errorf(ferrule.Limited, "something in the question is too large: at most %d KiB are possible", limits[sqlite3.SQLITE_LIMIT_LENGTH]>>10).WithHint(narrowHint)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return ferrule.Errorf(ferrule.Busy, "what was measured is being written").WithHint("ask again in a moment")
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR:
		return ferrule.Errorf(ferrule.Internal, "what was measured cannot be read: %s", plain(said))
	}
	return ferrule.Errorf(ferrule.Invalid, "%s", plain(said)).WithHint(tablesHint)
}

// plain is what SQLite says, without what it says each time.
func plain(err *sqlite.Error) string {
	text := strings.TrimPrefix(err.Error(), "SQL logic error: ")
	return ferrule.Clean(strings.TrimSuffix(text, fmt.Sprintf(" (%d)", err.Code())), ferrule.MaxText)
}
