package console

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/browser"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// A press that was meant for one request must not allow another one that has just moved below
// the finger, and a double click is one press.
func TestPressOnWhatMoved(t *testing.T) {
	r := newCallRig(t)
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	b := browser.Start(t) // it ends first, with its open streams
	for _, id := range []string{"aaaaa", "bbbbb"} {
		r.waits = append(r.waits, ferrule.Approval{
			ID: id, State: ferrule.ApprovalWaiting, Device: "arm", Tool: "move_joint", Caller: "agent:claude", Args: json.RawMessage(`{"angle":35}`),
			Effect: ferrule.Changes, Created: time.Now(), Expires: time.Now().Add(time.Hour),
		})
	}
	answered := func() []string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Clone(r.answers)
	}
	b.Open(server.URL + "/approvals")
	b.Click("#approval-aaaaa button", "Allow once")
	b.Until("the first request is answered, and keeps its place", `document.querySelector("#approval-aaaaa[data-done]")`)
	var height int
	b.Eval(`(box => { box.append(...Array.from({ length: 9 }, () => document.createElement("hr"))); return box.offsetHeight })(document.querySelector("#approval-aaaaa"))`, &height)
	b.Click("#approval-bbbbb button", "Allow once")
	b.Until("the page says so", `document.querySelector(".toast")?.innerText.includes("has just moved")`)
	if got := answered(); !slices.Equal(got, []string{"aaaaa"}) {
		t.Fatalf("a press on what moved answered %q", got)
	}
	var began float64
	b.Eval("window.began = Date.now()", &began)
	b.Until("the page has not moved for a while", "Date.now() - window.began > 1000")
	b.Click("#approval-bbbbb button", "Allow once")
	wait.Within(t, browser.Limit, "a later press answers the second request", func() bool { return len(answered()) == 2 })
	b.Open(server.URL + "/devices/arm")
	b.Until("the page is there", `document.readyState === "complete" && window.ferrule && document.querySelector("form[data-call] button")`)
	var single, double bool
	const press = `(n => document.querySelector("form[data-call] button").dispatchEvent(new MouseEvent("click", { detail: n, bubbles: true, cancelable: true })))`
	b.Eval(press+"(2)", &double)
	b.Eval(press+"(1)", &single)
	if double || !single {
		t.Errorf("a double click is sent twice (%t), or a click is not sent (%t)", double, !single)
	}
}
