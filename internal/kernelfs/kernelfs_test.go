package kernelfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRead: white space is removed, and what is not a number or is missing is an error.
func TestRead(t *testing.T) {
	Root = t.TempDir()
	defer func() { Root = "/" }()
	write := func(text string) (file string) {
		t.Helper()
		file = Path("value")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write(" 42500\n")
	text, err := Text(Root, "value")
	number, numberErr := Number(Root, "value")
	integer, integerErr := Integer(Root, "value")
	if err := errors.Join(err, numberErr, integerErr); err != nil || text != "42500" || number != 42500 || integer != 42500 {
		t.Errorf("got %q, %v, %d, %v", text, number, integer, err)
	}
	for _, text := range []string{"", "warm", "NaN", "+Inf", "1e999"} {
		file := write(text)
		if n, err := Number(file); err == nil || !strings.Contains(err.Error(), "want a number") {
			t.Errorf("%q is the number %v, %v", text, n, err)
		}
		if n, err := Integer(file); err == nil || !strings.Contains(err.Error(), "want an integer") {
			t.Errorf("%q is the integer %v, %v", text, n, err)
		}
	}
	if n, err := Integer(write("1.5")); err == nil {
		t.Errorf("1.5 is the integer %d", n)
	}
	if text, err := Text(write(strings.Repeat("x", 2*maxFile))); err != nil || len(text) != maxFile {
		t.Errorf("a large file has %d bytes, %v", len(text), err)
	}
	if _, err := Number(filepath.Join(Root, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
