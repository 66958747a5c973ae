package query

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// Names of the test binary as a child, and as a child that uses too much memory.
const child, greedy = "query-child", "query-greedy"

func TestMain(m *testing.M) {
	var err error
	switch os.Args[0] {
	case child:
		err = Serve(os.Stdin, os.Stdout)
	case greedy:
		err = limitProcess()
		fmt.Println("limited:", err)
		for i, block := 0, make([]byte, 512<<20); i < len(block); i += 4096 {
			block[i] = 1
		}
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestProcessLimits checks that the system limits the memory of a child, in addition to
// SQLite's own limits.
func TestProcessLimits(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux limits the process")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Env = []string{greedy}, environment()
	if out, err := cmd.Output(); err == nil || string(out) != "limited: <nil>\n" {
		t.Errorf("%v, %s", err, out)
	}
}

// schema has the documented views over another table.
const schema = `
CREATE TABLE raw(device TEXT, signal TEXT, at INTEGER, value REAL, PRIMARY KEY(device, signal, at)) WITHOUT ROWID;
CREATE VIEW samples AS SELECT device, signal, at/1e6 AS time, value, 0.01 AS within FROM raw;
CREATE VIEW signals AS SELECT device, signal, 'lx' AS unit, min(time) AS first, max(time) AS last, max(value) AS value FROM samples GROUP BY 1, 2;
CREATE VIEW minutes AS SELECT device, signal, floor(time/60)*60 AS time, min(value) AS min, max(value) AS max, avg(value) AS mean, count(*) AS count FROM samples GROUP BY 1, 2, 3;
CREATE VIEW hours AS SELECT device, signal, floor(time/3600)*3600 AS time, min(min) AS min, max(max) AS max, avg(mean) AS mean, sum(count) AS count FROM minutes GROUP BY 1, 2, 3;
CREATE VIEW gaps AS SELECT device, signal, min(time) AS "from", max(time) AS "to", 'lost' AS reason, 1 AS max_missing FROM samples WHERE 0 GROUP BY 1, 2;
INSERT INTO raw WITH RECURSIVE n(i) AS (VALUES(0) UNION ALL SELECT i+1 FROM n LIMIT 5000)
	SELECT 'robot', 'light', 1769868000000000 + i*500000, abs(sin(i/100.0))*1000 FROM n;
`

// store is a history file that the gateway is writing to.
type store struct {
	*sql.DB
	runner *Runner
}

var template = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "query")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "history.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return nil, err
	}
	_, err = db.Exec(schema)
	if err := errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func newStore(t *testing.T) *store {
	t.Helper()
	data, err := template()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "what was%20measured?.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	file, _, _ := strings.Cut(address(path), "?")
	db, err := sql.Open("sqlite", file+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec("INSERT INTO raw VALUES('lamp', 'power', 1769868000000000, 5)"); err != nil {
		t.Fatal(err)
	}
	return &store{db, newRunner(t, path)}
}

func newRunner(t *testing.T, path string) *Runner {
	t.Helper()
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	a := New(path, self, child)
	a.env = append(a.env, "GORACE=atexit_sleep_ms=0")
	a.timeout, a.wait = wait.Ample, wait.Ample // a busy machine needs seconds to start a process
	return a
}

// ask runs a query and returns the answer as text.
func (s *store) ask(t *testing.T, text string, rows int) (string, error) {
	t.Helper()
	columns, answer, more, err := s.runner.Ask(t.Context(), text, rows)
	if err != nil {
		return "", err
	}
	out, err := json.Marshal(struct {
		Columns []string
		Rows    []json.RawMessage
		More    bool
	}{columns, answer, more})
	return string(out), err
}

// TestAsk checks queries while the file is being written.
func TestAsk(t *testing.T) {
	s := newStore(t)
	for _, test := range []struct {
		text string
		rows int
		want string
	}{
		{"SELECT count(*) AS n FROM samples", 0, `{"Columns":["n"],"Rows":[[5001]],"More":false}`},
		{"select device, signal, unit, value from signals order by 1;", 0, `{"Columns":["device","signal","unit","value"],"Rows":[["lamp","power","lx",5],["robot","light","lx",999.99`},
		{" -- how long?\n/* in minutes */ WITH m AS (SELECT * FROM minutes WHERE device='robot') SELECT count(*), sum(count) FROM m ; ; -- that is all", 0, `"Rows":[[42,5000]]`},
		{"SELECT datetime(time,'unixepoch'), value FROM samples WHERE device='robot' ORDER BY time DESC LIMIT 1", 0, `[["2026-01-31 14:41:39",`},
		{"VALUES(1, 2.5, 'a;b', NULL, x'00ff', 9e999, -9e999)", 0, `[[1,2.5,"a;b",null,"x'00ff'","+Inf","-Inf"]]`},
		{"SELECT CAST(x'ff41' AS TEXT) AS \"a;b\", 'it''s;', [value] FROM samples LIMIT 1", 0, `{"Columns":["a;b","'it''s;'","value"],"Rows":[["\ufffdA","it's;",`},
		{"SELECT time FROM samples", 3, `"More":true`},
		{"SELECT time FROM samples LIMIT 3", 3, `"More":false`},
		{"SELECT * FROM gaps", 0, `{"Columns":["device","signal","from","to","reason","max_missing"],"Rows":[],"More":false}`},
		{"SELECT json_extract('{\"a\":[1,2]}', '$.a[1]'), sqrt(2) > 1.4", 0, `[[2,1]]`},
	} {
		if got, err := s.ask(t, test.text, test.rows); err != nil || !strings.Contains(got, strings.ReplaceAll(test.want, `\ufffd`, "\ufffd")) {
			t.Errorf("%s\n got %.300s, %v\nwant %s", test.text, got, err, test.want)
		}
	}
	_, rows, more, err := s.runner.Ask(t.Context(), "SELECT time, value FROM samples", 1<<30)
	if err != nil || len(rows) != MaxRows || !more {
		t.Errorf("%d rows, more %t, %v", len(rows), more, err)
	}
	if _, rows, _, _ := s.runner.Ask(t.Context(), "SELECT time, value FROM samples", 0); len(rows) != defaultRows {
		t.Errorf("%d rows, want %d", len(rows), defaultRows)
	}
	size := 0
	_, rows, more, err = s.runner.Ask(t.Context(), "SELECT hex(zeroblob(5000)) FROM samples", MaxRows)
	for _, row := range rows {
		size += len(row)
	}
	if err != nil || size > maxAnswer || size < maxAnswer/2 || !more {
		t.Errorf("%d bytes, more %t, %v", size, more, err)
	}
}

// TestInvalid checks that other statements and dangerous functions are refused with a
// helpful message.
func TestInvalid(t *testing.T) {
	s := newStore(t)
	for text, want := range map[string]string{
		"":                           "empty",
		" -- only\n /* words":        "empty",
		";":                          "begin with SELECT",
		"SELECT 1; SELECT 2":         "one statement",
		"SELECT 1;;;/**/DELETE":      "one statement",
		"SELECT ';'; DROP TABLE raw": "one statement",
		"SELECT 1 --;\n; PRAGMA x":   "one statement",
		"EXPLAIN SELECT 1":           "begin with SELECT",
		"PRAGMA query_only=0":        "begin with SELECT",
		"/* SELECT */ ATTACH DATABASE '/tmp/x.db' AS x":             "begin with SELECT",
		"\ufeffVACUUM INTO '/tmp/x.db'":                             "begin with SELECT",
		"INSERT INTO raw VALUES(1,2,3,4)":                           "begin with SELECT",
		"DELETE FROM raw":                                           "begin with SELECT",
		"CREATE TEMP TABLE x(a)":                                    "begin with SELECT",
		"BEGIN":                                                     "begin with SELECT",
		"\"SELECT\" 1":                                              "begin with SELECT",
		"SELECT 1\x00; DROP TABLE raw":                              "NUL",
		"SELECT '\xff\xfe'":                                         "UTF-8",
		"SELECT '" + strings.Repeat("x", MaxText) + "'":             "limit is",
		"WITH x AS (SELECT 1) INSERT INTO raw SELECT * FROM raw":    "read-only",
		"WITH x AS (SELECT 1) DELETE FROM raw":                      "read-only",
		"WITH x AS (SELECT 1) UPDATE raw SET value=0":               "read-only",
		"SELECT * FROM passwords":                                   "samples(device, signal, time",
		"SELECT wat FROM samples":                                   "samples(device, signal, time",
		"SELECT FROM WHERE":                                         "syntax error",
		"SELECT 'no end":                                            "unrecognized token",
		"SELECT ?":                                                  "missing",
		"SELECT load_extension('/tmp/x.so')":                        "not authorized",
		"SELECT writefile('/tmp/x', 'x')":                           "no such function",
		"SELECT readfile('/etc/passwd')":                            "no such function",
		"SELECT edit('x')":                                          "no such function",
		"SELECT fts3_tokenizer('x', x'00')":                         "no such function",
		"SELECT * FROM pragma_journal_mode('delete')":               "cannot be queried",
		"SELECT randomblob(1000000000)":                             "too large",
		"SELECT zeroblob(2147483647)":                               "too large",
		"SELECT printf('%.*c', 1000000000, 'x')":                    "too large",
		"SELECT replace(hex(zeroblob(100000)), '0', 'xxxxxxxxxx')":  "too large",
		"SELECT 'a' LIKE '" + strings.Repeat("%a", 60) + "'":        "pattern",
		"SELECT max(" + strings.Repeat("1,", 30) + "1)":             "too many arguments",
		"SELECT " + strings.Repeat("1,", 100) + "1":                 "too many columns",
		"SELECT 1" + strings.Repeat("+1", 500):                      "too large",
		"SELECT 1" + strings.Repeat(" UNION SELECT 1", 100):         "too many terms",
		"SELECT 1 FROM samples" + strings.Repeat(", samples", 1000): "too many FROM clause terms",
		"SELECT " + strings.Repeat("(SELECT ", 300) + "1" + strings.Repeat(")", 300): "",
	} {
		got, err := s.ask(t, text, 0)
		var e *ferrule.Error
		if !errors.As(err, &e) || !strings.Contains(e.Message+e.Hint, want) || e.MayHaveRun() {
			t.Errorf("%.80q: got %.80s, %v", text, got, err)
		}
	}
	var n int
	if err := s.QueryRow("SELECT count(*) FROM raw WHERE value IS NOT NULL").Scan(&n); err != nil || n != 5001 {
		t.Errorf("%d samples, %v", n, err)
	}
}

// bombs are queries that need more resources than there are.
var bombs = map[string]string{
	"endless":            "WITH RECURSIVE n(i) AS (VALUES(0) UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n",
	"endless and unique": "WITH RECURSIVE n(i) AS (VALUES(0) UNION SELECT i+1 FROM n) SELECT count(*) FROM n",
	"doubling":           "WITH RECURSIVE n(i) AS (VALUES('x') UNION ALL SELECT i||i FROM n) SELECT sum(length(i)) FROM n",
	"wide queue":         "WITH RECURSIVE n(i, s) AS (VALUES(0, hex(zeroblob(1000))) UNION ALL SELECT i+1, s||i FROM n UNION ALL SELECT i+2, s||i FROM n) SELECT count(*) FROM n",
	"joins":              "SELECT count(*) FROM samples a, samples b, samples c, samples d WHERE a.value+b.value+c.value = d.value",
	"many joins":         "SELECT count(*) FROM " + strings.TrimSuffix(strings.Repeat("raw, ", 60), ", "),
	"views of views":     "SELECT count(*) FROM hours a, hours b, minutes c, minutes d, signals e, signals f",
	"group_concat":       "SELECT group_concat(a.value||b.value||c.value) FROM samples a, samples b, samples c",
	"json":               "SELECT json_group_array(json_array(a.value, b.value, c.value)) FROM samples a, samples b, samples c",
	"sort":               "SELECT a.value, hex(randomblob(200)) AS r FROM samples a, samples b ORDER BY r, a.value",
	"distinct":           "SELECT count(DISTINCT hex(randomblob(100))) FROM samples a, samples b",
	"group by":           "SELECT count(*) FROM samples a, samples b GROUP BY hex(randomblob(100))",
	"blobs":              "SELECT " + strings.TrimSuffix(strings.Repeat("randomblob(250000),", 64), ",") + " FROM samples",
	"kept blobs":         "WITH n(i) AS MATERIALIZED (SELECT randomblob(250000) FROM samples) SELECT max(a.i) FROM n a, n b",
	"window":             "SELECT sum(length(x)) FROM (SELECT group_concat(hex(randomblob(100))) OVER (ROWS BETWEEN 1000 PRECEDING AND CURRENT ROW) AS x FROM samples a, samples b)",
	"instr":              "SELECT sum(instr(hex(zeroblob(120000)), hex(zeroblob(60000))||a.value)) FROM samples a, samples b",
	"like":               "SELECT count(*) FROM samples WHERE hex(zeroblob(50000))||value LIKE '%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%x'",
	"glob":               "SELECT count(*) FROM samples WHERE hex(zeroblob(50000))||value GLOB '*0*0*0*0*0*0*0*0*0*0*0*0*0*0*0*0*0*0*0*0*0*x'",
	"replace":            "WITH RECURSIVE n(s) AS (VALUES('ab') UNION ALL SELECT replace(s, 'a', 'aab') FROM n) SELECT max(length(s)) FROM n",
	"printf":             "SELECT sum(length(printf('%200000d', a.value))) FROM samples a, samples b",
	"deep json":          "SELECT count(*) FROM samples, json_tree('" + strings.Repeat("[", 900) + strings.Repeat("]", 900) + "'), json_tree('[[1,2],[3,4]]') a, samples b",
	"cross join of json": "SELECT count(*) FROM json_each((SELECT json_group_array(value) FROM samples WHERE time < 1769870000)) a, samples b, samples c",
	"dbpage":             "SELECT max(a.data) FROM sqlite_dbpage a, sqlite_dbpage b, sqlite_dbpage c",
	"dbstat":             "SELECT * FROM dbstat a, dbstat b, dbstat c, dbstat d ORDER BY random()",
}

// finite are the bombs that a fast machine may survive.
var finite = []string{"views of views", "like", "glob", "blobs", "kept blobs", "window", "deep json", "cross join of json", "dbpage", "dbstat"}

// bombTime is the timeout of a bomb.
var bombTime = flag.Duration("bombs", 250*time.Millisecond, "`timeout` of each query of TestBombs")

// TestBombs checks that limits end any query and its process, and that it does not harm the
// file or its writer.
func TestBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	s := newStore(t)
	s.runner.timeout = *bombTime
	var worst int
	var slowest time.Duration
	for name, text := range bombs {
		stop := make(chan struct{})
		peak := make(chan int, 1)
		process := 0
		s.runner.started = func(pid int) {
			process = pid
			go func() { peak <- watch(pid, stop) }()
		}
		start := time.Now()
		_, rows, _, err := s.runner.Ask(t.Context(), text, 0)
		took := time.Since(start)
		close(stop)
		memory := 0
		if runtime.GOOS == "linux" {
			memory = <-peak
		}
		worst, slowest = max(worst, memory), max(slowest, took)
		t.Logf("%-20s %6v %3d MB, %d rows, %v", name, took.Round(time.Millisecond), memory>>20, len(rows), err)
		var e *ferrule.Error
		if err != nil && (!errors.As(err, &e) || e.Code != ferrule.Limited && e.Code != ferrule.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && !slices.Contains(finite, name) {
			t.Errorf("%s: no limit ended it", name)
		}
		if exists(process) {
			t.Errorf("%s: process %d still exists", name, process)
		}
		if _, err := s.Exec("INSERT INTO raw SELECT 'lamp', 'power', max(at)+1, 5 FROM raw WHERE device='lamp'"); err != nil {
			t.Errorf("%s: writing fails after it: %v", name, err)
		}
	}
	figure.AtMost(t, "the slowest bomb", slowest, 2*time.Second)
	figure.AtMost(t, "bytes of the largest bomb", worst, 64<<20)
	if worst == 0 && runtime.GOOS == "linux" {
		t.Error("no memory was measured")
	}
	var ok string
	var n int
	if err := errors.Join(s.QueryRow("PRAGMA integrity_check").Scan(&ok), s.QueryRow("SELECT count(*) FROM raw").Scan(&n)); err != nil || ok != "ok" || n != 5001+len(bombs) {
		t.Errorf("the file is %s, with %d samples: %v", ok, n, err)
	}
}

// watch returns the peak memory of a process.
func watch(pid int, stop <-chan struct{}) (peak int) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	for {
		text, err := os.ReadFile(path)
		if err != nil {
			return peak
		}
		for line := range strings.Lines(string(text)) {
			var kb int
			if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 {
				peak = max(peak, kb<<10)
			}
		}
		select {
		case <-stop:
			return peak
		case <-time.After(time.Millisecond):
		}
	}
}

// exists reports whether there is a process. It can tell on Linux only.
func exists(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}

// TestConcurrent checks the limit of concurrent queries, and that a cancelled query leaves
// no process.
func TestConcurrent(t *testing.T) {
	s := newStore(t)
	var mu sync.Mutex
	var pids []int
	s.runner.started = func(pid int) {
		mu.Lock()
		defer mu.Unlock()
		pids = append(pids, pid)
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if got, err := s.ask(t, "SELECT count(*) FROM samples", 0); err != nil || !strings.Contains(got, "5001") {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 * maxConcurrent {
		wg.Go(func() {
			_, _, _, err := s.runner.Ask(ctx, bombs["endless"], 0)
			var e *ferrule.Error
			if !errors.As(err, &e) || e.Code != ferrule.Cancelled && e.Code != ferrule.Limited {
				t.Error(err)
			}
		})
	}
	wait.For(t, "all slots are in use", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(pids) == 6+maxConcurrent
	})
	start := time.Now()
	cancel()
	wg.Wait()
	figure.AtMost(t, "canceling queries", time.Since(start), 5*time.Second)
	if len(pids) != 6+maxConcurrent {
		t.Errorf("%d processes, want %d", len(pids), 6+maxConcurrent)
	}
	for _, pid := range pids {
		if exists(pid) {
			t.Errorf("process %d still exists", pid)
		}
	}
}

// TestNoFile checks the error for a missing or corrupt file.
func TestNoFile(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.db")
	if err := os.WriteFile(broken, []byte(strings.Repeat("not a database", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "nothing.db"), broken} {
		_, _, _, err := newRunner(t, path).Ask(t.Context(), "SELECT * FROM samples", 0)
		var e *ferrule.Error
		if !errors.As(err, &e) || e.Code != ferrule.Internal {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := os.Stat(path); path != broken && err == nil {
			t.Error("a file was created")
		}
	}
}

// TestRelative checks a relative path, as --data can be.
func TestRelative(t *testing.T) {
	s := newStore(t)
	t.Chdir(filepath.Dir(s.runner.path))
	s.runner = newRunner(t, filepath.Base(s.runner.path))
	if got, err := s.ask(t, "SELECT count(*) FROM samples", 0); err != nil || !strings.Contains(got, "5001") {
		t.Errorf("%s, %v", got, err)
	}
}

// TestNoPaths checks that neither answers nor errors contain the path of the file or of the
// program.
func TestNoPaths(t *testing.T) {
	s := newStore(t)
	dir := filepath.Base(filepath.Dir(s.runner.path))
	for _, text := range []string{
		"SELECT * FROM pragma_database_list", "SELECT hex(file) FROM Pragma_Database_List()", `SELECT * FROM "pragma_database_list"`,
		"SELECT * FROM main.pragma_database_list", "SELECT * FROM [pragma_database_list]", "SELECT * FROM 'pragma_database_list'", "SELECT * FROM `pragma_database_list`",
		"WITH x AS (SELECT 1) SELECT * FROM x, pragma_database_list;", "SELECT/**/*/**/FROM/**/pragma_database_list",
	} {
		if out, err := s.ask(t, text, 0); err == nil || !strings.Contains(err.Error(), "cannot be queried") {
			t.Errorf("%s: got %s, %v", text, out, err)
		}
	}
	if out, err := s.ask(t, "SELECT name, sql FROM sqlite_schema", 0); err != nil || strings.Contains(out, dir) {
		t.Errorf("got %s, %v", out, err)
	}
	gone := newRunner(t, filepath.Join(filepath.Dir(s.runner.path), "gone.db"))
	notStarted := New(s.runner.path, filepath.Join(filepath.Dir(s.runner.path), "no-program"), child)
	for _, r := range []*Runner{gone, notStarted} {
		if _, _, _, err := r.Ask(t.Context(), "SELECT 1", 0); err == nil || strings.Contains(err.Error(), dir) {
			t.Errorf("got %v", err)
		}
	}
}
