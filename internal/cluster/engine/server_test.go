package engine

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestNoBanner checks that the server in this process logs words only, also at the debug
// level.
func TestNoBanner(t *testing.T) {
	var out bytes.Buffer
	e, err := Start(DefaultConfig(), t.TempDir(), slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), func() {})
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	if !strings.Contains(out.String(), "nats: ") || strings.Contains(out.String(), "___") {
		t.Errorf("the log is\n%s", out.String())
	}
}
