package query

import (
	"testing"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteC is SQLite's C interface.
type sqliteC struct {
	tls *libc.TLS
	db  uintptr
}

const pointer = unsafe.Sizeof(uintptr(0))

// at returns the pointer stored at an address.
func at(address uintptr) uintptr { return **(**uintptr)(unsafe.Pointer(&address)) }

func openC(t testing.TB) sqliteC {
	tls := libc.NewTLS()
	name, err := libc.CString(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	place := tls.Alloc(int(pointer))
	rc := sqlite3.Xsqlite3_open(tls, name, place)
	c := sqliteC{tls, at(place)}
	t.Cleanup(func() {
		sqlite3.Xsqlite3_close_v2(tls, c.db)
		tls.Free(int(pointer))
		libc.Xfree(tls, name)
		tls.Close()
	})
	if rc != sqlite3.SQLITE_OK {
		t.Fatalf("code %d", rc)
	}
	return c
}

// statements returns how many statements SQLite finds in a text, and whether all are valid.
func (c sqliteC) statements(t *testing.T, text string) (n int, ok bool) {
	t.Helper()
	start, err := libc.CString(text)
	if err != nil {
		t.Fatal(err)
	}
	defer libc.Xfree(c.tls, start)
	statement := c.tls.Alloc(int(2 * pointer))
	defer c.tls.Free(int(2 * pointer))
	tail := statement + pointer
	for next := start; ; next = at(tail) {
		if sqlite3.Xsqlite3_prepare_v2(c.tls, c.db, next, -1, statement, tail) != sqlite3.SQLITE_OK {
			return n, false
		}
		if prepared := at(statement); prepared != 0 {
			n++
			sqlite3.Xsqlite3_finalize(c.tls, prepared)
		}
		if libc.GoString(at(tail)) == "" {
			return n, true
		}
	}
}

// FuzzCheck checks that a text that Check accepts is not several statements to SQLite.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{
		"SELECT 1;", "select ';' -- ;\n", "WITH a AS (VALUES(1)) SELECT 1 FROM a /*;", "VALUES(\"a;\"\"b\", `c;``d`)", "SELECT 1;/**/SELECT 2",
		"SELECT x'00';", "SELECT 'a''';''", "SELECT 1 AS [;]", "SELECT 1 --\r;SELECT 2", "SELECT 1 /*/;SELECT 2", "\ufeffSELECT 1", "SELECT 1;\v",
	} {
		f.Add(text)
	}
	c := openC(f)
	f.Fuzz(func(t *testing.T, text string) {
		if Check(text) != nil {
			return
		}
		if n, ok := c.statements(t, text); n > 1 || ok && n == 0 {
			t.Errorf("%q is %d statements", text, n)
		}
	})
}

// TestCheckOne checks that Check accepts what SQLite takes for one statement.
func TestCheckOne(t *testing.T) {
	c := openC(t)
	for _, text := range []string{
		"SELECT ';'", "SELECT ';;' AS [a;b];", "SELECT 1 AS \";\" ; -- ;", "SELECT 1 /* ; */ + 1 /* ;", "VALUES (';''')", "SELECT 1 AS `;```", " \t\r\n\fselect 1", "WITH a(b) AS (SELECT ';') SELECT b FROM a;;;",
	} {
		if n, ok := c.statements(t, text); !ok || n != 1 {
			t.Fatalf("%q is %d statements to SQLite", text, n)
		}
		if err := Check(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
