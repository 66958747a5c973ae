package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/source"
)

// TestBoards checks that the messages in docs/how-to/troubleshooting.md exist in the source. Words in
// capitals are placeholders.
func TestBoards(t *testing.T) {
	doc, err := os.ReadFile("../../docs/how-to/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "| what it says |")
	texts := source.Strings(t)
	messages := 0
	for row := range strings.Lines(table) {
		cells := strings.Split(row, " | ")
		for _, message := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[0], -1) {
			messages++
			for _, part := range regexp.MustCompile(`\b[A-Z]+\b|\bauto\b|…|: `).Split(message[1], -1) {
				if part = strings.Trim(part, " ;()"); !strings.Contains(texts, part) {
					t.Errorf("no string contains %q, of %q", part, message[1])
				}
			}
		}
	}
	if messages < 15 {
		t.Errorf("the table has %d messages", messages)
	}
}
