package endpoint

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/agent/rpc"
)

// TestFit checks that responses stay within the limit, that truncation is marked, and that
// an error keeps its end, which says whether the action may have run.
func TestFit(t *testing.T) {
	const limit = minLimit
	text := func(s string) string { return string(rpc.Encode(map[string]string{"type": "text", "text": s})) }
	long := strings.Repeat("温度<\"", 1000)
	for name, test := range map[string]struct {
		method, result string
		want, not      []string
	}{
		"short":       {methodCallTool, `{"content":[` + text("a<b") + `],"structuredContent":{"a":1}}`, []string{`"a<b"`, "structuredContent"}, []string{"Cut"}},
		"data beside": {methodCallTool, `{"_meta":{"x":1},"content":[` + text("small") + `],"structuredContent":{"a":"` + strings.Repeat("x", limit) + `"},"isError":true}`, []string{"small", `"isError":true`}, []string{"Cut", "structuredContent", "_meta"}},
		"long":        {methodCallTool, `{"content":[` + text(long) + `]}`, []string{"温度", "[Truncated: the result has ", "allows 4096."}, []string{"isError"}},
		"error":       {methodCallTool, `{"isError":true,"content":[` + text(long+" It may have run. Look first.") + `]}`, []string{"温度", "[Truncated: ", "It may have run. Look first.", `"isError":true`}, nil},
		"error twice": {methodCallTool, `{"isError":true,"content":[` + text("Nothing was sent.") + `,{"type":"image","data":"AA=="}],"structuredContent":{"a":1},"_meta":{"x":1}}`,
			[]string{`"error":"Nothing was sent.\n[Omitted: image of `, `"structuredContent":{"a":1}`, `"_meta"`, `"content":[`}, nil},
		"picture":  {methodCallTool, `{"content":[` + text("a cat") + `,{"type":"image","data":"` + strings.Repeat("A", limit) + `","mimeType":"image/png"}]}`, []string{"a cat", "[Omitted: image of 4"}, []string{"AAAA"}},
		"controls": {methodCallTool, `{"isError":true,"content":[` + text(strings.Repeat("\x01", limit)) + `]}`, []string{"[Truncated: "}, nil},
		"list":     {"tools/list", `{"tools":["` + strings.Repeat("x", limit) + `"]}`, []string{`"error":`, "this endpoint allows 4096"}, []string{"xxxx"}},
		"odd":      {methodCallTool, `{"content":"` + strings.Repeat("x", limit) + `"}`, []string{`"error":`}, []string{"xxxx"}},
	} {
		r := request{json.RawMessage(`"` + strings.Repeat("i", rpc.MaxID-2) + `"`), test.method}
		got := fit(r, rpc.Message{Result: json.RawMessage(test.result)}, limit)
		if len(got) > limit || !json.Valid(got) || !utf8.Valid(got) || !strings.Contains(string(got), string(r.id)) {
			t.Errorf("%s: %d bytes: %s", name, len(got), got)
		}
		var texts struct {
			Result struct {
				IsError bool
				Error   string
				Content []struct{ Text string }
			}
		}
		if json.Unmarshal(got, &texts); texts.Result.IsError && (texts.Result.Error == "" || !strings.HasPrefix(texts.Result.Error, texts.Result.Content[0].Text)) {
			t.Errorf("%s: the error is %q", name, texts.Result.Error)
		}
		var cut struct{ Result json.RawMessage }
		if name == "long" && (json.Unmarshal(got, &cut) != nil || len(got) < limit-8) {
			t.Errorf("%s: only %d bytes are used", name, len(got))
		}
		for _, want := range test.want {
			if !strings.Contains(string(got), want) {
				t.Errorf("%s: %q is missing: %s", name, want, got)
			}
		}
		for _, not := range test.not {
			if strings.Contains(string(got), not) {
				t.Errorf("%s: %q is there: %s", name, not, got)
			}
		}
	}
	refused := failure(rpc.CodeInternal, strings.Repeat("no ", limit))
	if got := fit(request{json.RawMessage("1"), methodCallTool}, refused, limit); len(got) > limit || !strings.Contains(string(got), fmt.Sprint(rpc.CodeInternal)) {
		t.Errorf("got %s", got)
	}
}
