package mcp

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestPage checks the numbers of the page about HTTP devices. Package sim runs its transcripts.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/reference/http-devices.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	cfg := httpclient.DefaultConfig()
	for _, want := range []string{
		fmt.Sprintf("%s and, with sessions, %s to %s", modern, oldest, legacy),
		fmt.Sprintf("sends `initialize` with %s", legacy),
		fmt.Sprintf("accepts the versions %s to %s", oldest, legacy),
		fmt.Sprintf("A response has at most %d MB, its header", cfg.MaxMessage>>20),
		fmt.Sprintf("at most %d bytes of printable ASCII", maxSessionID),
		fmt.Sprintf("up to %d pages, %d tools and %d MB", maxPages, ferrule.MaxTools, ferrule.MaxManifest>>20),
		fmt.Sprintf("Names have 1 to %d bytes", ferrule.MaxToolName),
		fmt.Sprintf("at most %d KB, and references only within itself", ferrule.MaxSchema>>10),
		fmt.Sprintf("IDs are integers up to %d", maxID),
		fmt.Sprintf("Up to %d notifications per second are passed on, of at most %d KB each", time.Second/every, maxParams>>10),
		fmt.Sprintf("idle for %d seconds. It must answer within %d seconds", int(beat.Seconds()), int(beatWait.Seconds())),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if discoverWait != 4*time.Second || initializeWait != 10*time.Second || initializeTry != 2 || maxUnchecked != time.Second || defaultRetry != time.Second ||
		cfg.ResponseTimeout != 3*time.Minute || cfg.DialTimeout != 5*time.Second {
		t.Error("the page has these times in words")
	}
	for status, want := range map[int]ferrule.Code{
		400: ferrule.Refused, 401: ferrule.Refused, 403: ferrule.Refused, 405: ferrule.Refused, 429: ferrule.Refused, 499: ferrule.Refused,
		0: ferrule.Unanswered, 408: ferrule.Unanswered, 500: ferrule.Unanswered, 503: ferrule.Unanswered,
	} {
		e := &requestError{sent: true, status: status, err: statusError(status, nil)}
		if got := e.callError(t.Context(), &ferrule.Call{}).Code; got != want {
			t.Errorf("status %d is %s, and the page says %s", status, got, want)
		}
	}
	for code, want := range map[int]bool{-32700: true, -32600: true, -32601: true, -32602: true, -32603: false, -32000: false} {
		if got := refused(&jsonrpc.Error{Code: code}); got != want {
			t.Errorf("error %d: refused is %t, and the page says %t", code, got, want)
		}
	}
	for _, anchor := range []string{"Requests", "Sessions", "Versions", "Errors", "Tools", "Schemas", "Calls", "Streams", "Reconnect"} {
		if !strings.Contains(string(page), "\n## "+anchor+"\n") {
			t.Errorf("the page has no heading %s", anchor)
		}
	}
}
