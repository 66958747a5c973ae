package panel_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/console/panel"
)

// TestPanels: each panel is one small document that loads nothing, and puts no text of a
// device into HTML.
func TestPanels(t *testing.T) {
	for name, html := range map[string]string{"device": panel.Device(), "history": panel.History(), "approval": panel.Approval()} {
		t.Logf("%s has %d bytes", name, len(html))
		if len(html) > panel.MaxSize {
			t.Errorf("%s has %d bytes; limit is %d", name, len(html), panel.MaxSize)
		}
		if !strings.HasPrefix(html, "<!doctype html>") || strings.Count(html, "<script>") != 1 || strings.Count(html, "</script>") != 1 {
			t.Errorf("%s is not a document with one script", name)
		}
		for _, word := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "import(", "@import", "localStorage", "100vh"} {
			if strings.Contains(html, word) {
				t.Errorf("%s contains %s", name, word)
			}
		}
		for _, url := range regexp.MustCompile(`(?:https?:)?//[a-z0-9.-]+\.[a-z]+[^\s"]*`).FindAllString(html, -1) {
			if url != "http://www.w3.org/2000/svg" {
				t.Errorf("%s contains %s", name, url)
			}
		}
		if !strings.Contains(html, "e.source !== parent") {
			t.Errorf("%s takes messages from everybody", name)
		}
		for _, icon := range []string{"on", "off", "pause", "stop", "info", "done", "notsent", "maybe", "refused", "danger", "eye", "change", "right", "devices", "link", "lock", "clock"} {
			if !strings.Contains(html, `id="i-`+icon+`"`) {
				t.Errorf("%s has no icon %s", name, icon)
			}
		}
	}
	if strings.Contains(panel.Approval(), "answer_approval") {
		t.Error("the approval panel knows how to answer")
	}
}
