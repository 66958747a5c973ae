// Package kernelfs reads small files of the Linux kernel, in /sys and /proc.
package kernelfs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Root is the folder that contains sys, proc and dev. Only tests replace it.
var Root = "/"

// maxFile is the limit of a file. Theirs have a page or a few.
const maxFile = 64 << 10

// Path returns a path below the root.
func Path(parts ...string) string { return filepath.Join(Root, filepath.Join(parts...)) }

// Text returns the content of a file without white space at its ends.
func Text(parts ...string) (string, error) {
	f, err := os.Open(filepath.Join(parts...))
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	return strings.TrimSpace(string(text)), err
}

// Number returns the number in a file.
func Number(parts ...string) (float64, error) {
	text, err := Text(parts...)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n-n != 0 { // not finite
		return 0, fmt.Errorf("%s contains %.20q, want a number", filepath.Join(parts...), text)
	}
	return n, nil
}

// Integer returns the integer in a file.
func Integer(parts ...string) (int64, error) {
	text, err := Text(parts...)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s contains %.20q, want an integer", filepath.Join(parts...), text)
	}
	return n, nil
}
