package check_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ops/check"
)

// TestPage checks that the how-to page shows what is printed, but for times and counts, and that
// the JUnit file is XML with a case for each step.
func TestPage(t *testing.T) {
	slow(t)
	t.Parallel()
	page, err := os.ReadFile("../../../docs/how-to/check-firmware.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```text\n")
	shown, _, _ := strings.Cut(rest, "```")
	_, board := startBoard(t, "glued")
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "check.xml")
	p := check.Printer{Out: &out, Style: func(_, text string) string { return text }, JUnit: file}
	err = p.Run(t.Context(), board, check.Options{})
	if err == nil || !strings.Contains(err.Error(), "has 1 fault") {
		t.Errorf("got %v", err)
	}
	differs := regexp.MustCompile(`\(\d+ times\)|in \d+ s|127\.0\.0\.1:\d+`)
	_, end, _ := strings.Cut(out.String(), "\n\n") // after the steps
	want := differs.ReplaceAllString(fmt.Sprintf("%sferrule: %v\n", end, err), "")
	if got := differs.ReplaceAllString(shown, ""); got != want {
		t.Errorf("the page shows:\n%s\nwant:\n%s", got, want)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var suite struct {
		Failures int `xml:"failures,attr"`
		Cases    []struct {
			Name    string `xml:"name,attr"`
			Failure string `xml:"failure"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(data, &suite); err != nil {
		t.Fatal(err)
	}
	failed := suite.Cases[len(suite.Cases)-1]
	if suite.Failures != 1 || len(suite.Cases) != 16 || failed.Name != "lines" || !strings.Contains(failed.Failure, "mcpu.glued-answer") {
		t.Errorf("the JUnit file is %+v", suite)
	}
}
