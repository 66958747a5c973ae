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

// Serve is the child: it reads one query from in and writes the answer to out. When in is
// closed, because the gateway does not wait anymore, it exits the process.
func Serve(in io.Reader, out io.Writer) error {
	unlimited := limitProcess()
	reader := bufio.NewReaderSize(in, 64<<10)
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("reading the query: %w", err)
	}
	var query request
	if err := json.Unmarshal(line, &query); err != nil {
		return fmt.Errorf("reading the query: %w", err)
	}
	go func() {
		reader.ReadByte() // returns at the end of in
		os.Exit(1)
	}()
	if unlimited != nil {
		return json.NewEncoder(out).Encode(reply{Error: ferrule.Errorf(ferrule.Internal, "limiting the query process: %w", unlimited)})
	}
	r, err := runQuery(query)
	if err != nil {
		r = &reply{Error: asError(err)}
		r.Error.Message = withoutPath(r.Error.Message, query.Path)
	}
	return json.NewEncoder(out).Encode(r)
}

// limits are SQLite's run-time limits: below its defaults, above what a query needs.
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

// runQuery runs a query in this process.
func runQuery(query request) (*reply, error) {
	ctx := context.Background()
	if err := countMemory(); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", address(query.Path))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("opening the history: %w", err)
	}
	defer conn.Close()
	for id, limit := range limits {
		if _, err := sqlite.Limit(conn, id, limit); err != nil {
			return nil, err
		}
	}
	rows, err := conn.QueryContext(ctx, query.Text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return read(rows, query.Rows)
}

// address returns the URI of the file, read-only. Sorting uses memory only, which is
// limited.
func address(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") { // for example C:/
		path = "/" + path
	}
	pragmas := url.Values{"mode": {"ro"}, "_defensive": {"1"}, "_pragma": {
		fmt.Sprintf("hard_heap_limit(%d)", maxHeap), "busy_timeout(1000)", "temp_store(2)", "cache_size(-1024)", "mmap_size(0)",
		"trusted_schema(0)", "query_only(1)",
	}}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: pragmas.Encode()}).String()
}

// countMemory makes SQLite count its memory, without which it enforces no limit. The
// library is compiled with counting off.
func countMemory() error {
	tls := libc.NewTLS()
	defer tls.Close()
	on := libc.NewVaList(int32(1))
	defer libc.Xfree(tls, on)
	if rc := sqlite3.Xsqlite3_config(tls, sqlite3.SQLITE_CONFIG_MEMSTATUS, on); rc != sqlite3.SQLITE_OK {
		return fmt.Errorf("enabling SQLite's memory limit: code %d", rc)
	}
	return nil
}

// read reads rows up to the limits.
func read(rows *sql.Rows, limit int) (*reply, error) {
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
		if len(r.Rows) == limit {
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
				return nil, ferrule.Errorf(ferrule.Limited, "a row is larger than %d bytes", maxAnswer).WithHint(narrowHint)
			}
			r.More = true
			return r, nil
		}
		r.Rows = append(r.Rows, row)
	}
	return r, rows.Err()
}

// encode encodes a row as a JSON array. Values without a JSON type become strings.
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

// asError converts an error to one that helps the user to correct the query.
func asError(err error) *ferrule.Error {
	var known *ferrule.Error
	if errors.As(err, &known) {
		return known
	}
	var failure *sqlite.Error
	if !errors.As(err, &failure) {
		return ferrule.Errorf(ferrule.Invalid, "query failed: %s", ferrule.Clean(err.Error(), ferrule.MaxText)).WithHint(tablesHint)
	}
	switch failure.Code() & 0xff {
	case sqlite3.SQLITE_NOMEM:
		return ferrule.Errorf(ferrule.Limited, "query needs more than %d MiB of memory", maxHeap>>20).WithHint(narrowHint)
	case sqlite3.SQLITE_READONLY:
		return ferrule.Errorf(ferrule.Denied, "the history is read-only")
	case sqlite3.SQLITE_TOOBIG:
		return ferrule.Errorf(ferrule.Limited, "a value in the query is too large, limit is %d KiB", limits[sqlite3.SQLITE_LIMIT_LENGTH]>>10).WithHint(narrowHint)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return ferrule.Errorf(ferrule.Busy, "the history is being written").WithHint("try again in a moment")
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR:
		return ferrule.Errorf(ferrule.Internal, "reading the history: %s", plain(failure))
	}
	return ferrule.Errorf(ferrule.Invalid, "%s", plain(failure)).WithHint(tablesHint)
}

// withoutPath removes the directory of a file from a text: it is not for agents.
func withoutPath(text, path string) string {
	for _, dir := range []string{filepath.Dir(path), filepath.ToSlash(filepath.Dir(path))} {
		text = strings.ReplaceAll(text, dir+string(filepath.Separator), "")
		text = strings.ReplaceAll(text, dir, "…")
	}
	return text
}

// plain returns SQLite's message without its standard prefix and code.
func plain(err *sqlite.Error) string {
	text := strings.TrimPrefix(err.Error(), "SQL logic error: ")
	return ferrule.Clean(strings.TrimSuffix(text, fmt.Sprintf(" (%d)", err.Code())), ferrule.MaxText)
}
