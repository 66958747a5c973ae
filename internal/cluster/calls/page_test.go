package calls

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestPage checks what the reference page says about calls.
func TestPage(t *testing.T) {
	page := clustertest.OpenPage(t)
	n := engine.Names{Tenant: "TENANT", Node: "NODE"}
	page.Names(n.Replies()+"TOKEN", n.Inbox()+".…")
	for _, verb := range []string{verbCall, verbCancel, verbAsk, verbAnswer} {
		page.Names(n.Request("NODE", "BOOT", verb))
	}
	for _, kind := range []byte{frameResult, frameValue, frameError, framePart, frameProgress, frameQuestion, frameMoved, frameRunning, frameUnknown, frameForgot} {
		page.Says("| `" + string(kind) + "` |")
	}
	page.Says(
		fmt.Sprintf("%d MiB", keptBytes>>20), fmt.Sprintf("%v seconds", keepTime.Seconds()), fmt.Sprintf("%v seconds without news", askAfter.Seconds()),
	)
	page.Shows(request{
		Call: ferrule.Call{
			ID: "01k8", Principal: ferrule.Principal{Role: ferrule.Agent, Name: "claude"}, Device: "pump", Tool: "start",
			Args: json.RawMessage(`{"litres":2}`), Timeout: ferrule.Duration(30 * time.Second),
		},
		Kind: "cb80d5cc8edddbc90f8b2000a71eb73c321bb340a27432434e19b109bfefd752", Epoch: 7, Effect: ferrule.Changes,
	})
	page.Explains(request{})
}
