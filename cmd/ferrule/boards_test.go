package main

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestBoards: docs/how-to/troubleshooting.md tells what to do about messages that there are. The
// parts of a message between words in capitals, which stand for something, are
// found in the strings of the source.
func TestBoards(t *testing.T) {
	doc, err := os.ReadFile("../../docs/how-to/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "| what it says |")
	texts := sourceTexts(t)
	messages := 0
	for row := range strings.Lines(table) {
		cells := strings.Split(row, " | ")
		for _, message := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[0], -1) {
			messages++
			for _, part := range regexp.MustCompile(`\b[A-Z]+\b|\bauto\b|…|: `).Split(message[1], -1) {
				if part = strings.Trim(part, " ;()"); !strings.Contains(texts, part) {
					t.Errorf("no message has %q, of %q", part, message[1])
				}
			}
		}
	}
	if messages < 15 {
		t.Errorf("the table has %d messages", messages)
	}
}

// sourceTexts is every string in the Go files that are no tests, a line each.
func sourceTexts(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("../..", func(file string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // of a tool or a test that runs beside this one
		}
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, _ := strconv.Unquote(lit.Value)
				all.WriteString(text + "\n")
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
