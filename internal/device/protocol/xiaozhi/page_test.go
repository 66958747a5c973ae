package xiaozhi

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
)

// TestPage checks what the page about xiaozhi devices says about this package. Package sim runs
// its transcripts.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/reference/xiaozhi-devices.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	for _, want := range []string{
		fmt.Sprintf("an integer ID from 1 to %d", maxID),
		fmt.Sprintf("within %d seconds |", int(helloWait.Seconds())),
		fmt.Sprintf("Ferrule waits %d, %d and %d seconds", int(firstWait.Seconds()), int(2*firstWait.Seconds()), int(4*firstWait.Seconds())),
		fmt.Sprintf("become events: %d per second, of at most %d KB", time.Second/every, maxParams>>10),
		fmt.Sprintf("reads up to %d pages", maxPages),
		fmt.Sprintf("A request has at most %d KB", maxRequest>>10),
		fmt.Sprintf("at least every %d seconds", int(beat.Seconds())),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if tries != 3 {
		t.Error("the page says three times")
	}
	_, refused, _ := strings.Cut(text, "| begins with ")
	refused, _, _ = strings.Cut(refused, " | refused")
	var listed []string
	for i, part := range strings.Split(refused, "`") {
		if i%2 == 1 {
			listed = append(listed, part)
		}
	}
	if strings.Join(listed, "\n") != strings.Join(refusals, "\n") {
		t.Errorf("the page lists %q, want %q", listed, refusals)
	}
	for code, want := range map[int]bool{jsonrpc.CodeInvalidRequest: true, jsonrpc.CodeMethodNotFound: true, jsonrpc.CodeInvalidParams: true, jsonrpc.CodeParseError: false} {
		e := jsonrpc.Error{Code: code}
		if e.Rejected() != want {
			t.Errorf("the page says something else about %d", code)
		}
	}
	for _, anchor := range []string{"Connection", "Hello", "Messages", "Tools", "Schemas", "Calls", "Errors", "Reconnect"} {
		if !strings.Contains(string(page), "\n## "+anchor+"\n") {
			t.Errorf("the page has no heading %s", anchor)
		}
	}
}
