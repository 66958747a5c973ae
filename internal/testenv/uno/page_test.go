//go:build linux

package uno_test

import (
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/transcript"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
)

// TestMCPUPage runs the transcripts of the page about MCP/U that name the Uno.
func TestMCPUPage(t *testing.T) {
	t.Parallel()
	b, h := start(t, uno.Options{Fast: true})
	b.ADC(0, 2500)
	all := transcript.For(transcript.Read(t, "../../../docs/reference/mcpu.md", "mcpu"), "uno")
	if len(all) < 5 {
		t.Errorf("only %d transcripts", len(all))
	}
	establish := func(condition string) {
		if condition != "at 5 volts on the light sensor" {
			t.Fatalf("unknown condition %q", condition)
		}
		b.ADC(0, 5000)
		for call[summary](h, "get_pin_summary", `{"pin":14}`).Latest != 1023 {
		}
	}
	for _, s := range all {
		h.port.SetReadDeadline(time.Now().Add(time.Minute))
		s.Run(t, h.port, establish, `{"jsonrpc":"2.0","id":32000,"method":"none_such"}`,
			`{"jsonrpc":"2.0","id":32000,"error":{"code":-32601,"message":"Method not found"}}`)
	}
}
