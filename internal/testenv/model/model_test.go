package model_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/model"
)

// apis are what agents send in each API, the tools and the result of a call, and what they
// expect.
var apis = map[string]struct{ tools, result, call, text string }{
	"/v1/messages": {
		tools:  `"messages":[{"role":"user","content":"Light!"}],"tools":[{"name":"mcp__x__lamp","input_schema":{"type":"object"}}]`,
		result: `"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":[{"type":"text","text":"bright"}]}]}],"tools":[{"name":"mcp__x__lamp"}]`,
		call:   `"id":"call_1","input":{},"name":"mcp__x__lamp"`,
		text:   `"text":"It is bright."`,
	},
	"/v1/responses": {
		tools:  `"input":[],"tools":[{"type":"web_search"},{"type":"namespace","name":"mcp__x","tools":[{"type":"function","name":"lamp","parameters":{"type":"object"}}]}]`,
		result: `"input":[{"type":"function_call_output","call_id":"call_1","output":"bright"}],"tools":[{"type":"function","name":"any"}]`,
		call:   `"arguments":"{\"on\":true}","call_id":"call_1","name":"lamp","namespace":"mcp__x"`,
		text:   `"text":"It is bright."`,
	},
	"/v1/chat/completions": {
		tools:  `"messages":[{"role":"user","content":"Light!"}],"tools":[{"function":{"name":"mcp__x__lamp","parameters":{"type":"object"}}}]`,
		result: `"messages":[{"role":"tool","tool_call_id":"call_1","content":"bright"}],"tools":[{"function":{"name":"any"}}]`,
		call:   `"function":{"arguments":"{\"on\":true}","name":"mcp__x__lamp"},"id":"call_1"`,
		text:   `"content":"It is bright."`,
	},
}

// TestModel sends requests like an agent: the model calls a tool, gets the result and
// answers with a text.
func TestModel(t *testing.T) {
	for path, d := range apis {
		t.Run(path, func(t *testing.T) {
			m := model.Start(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- converse(m.URL()+path, d.tools, d.call, d.result, d.text) }()
			tool := m.Offered(ctx, "lamp")
			if tool.FullName() != "mcp__x__lamp" || string(tool.Schema) != `{"type":"object"}` {
				t.Errorf("got %+v", tool)
			}
			if got := strings.TrimSpace(m.Call(ctx, tool, `{"on":true}`)); got != "bright" {
				t.Errorf("the result is %q", got)
			}
			m.Say(ctx, "It is bright.")
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// converse sends two requests, and checks the answers.
func converse(url, first, call, second, text string) error {
	for _, step := range [][2]string{{first, call}, {second, text}} {
		resp, err := http.Post(url, "application/json", strings.NewReader("{"+step[0]+"}"))
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		if !strings.Contains(string(body), step[1]) {
			return fmt.Errorf("%s: want %s, got %s", resp.Status, step[1], body)
		}
	}
	return nil
}

// TestOutside: requests to other hosts are refused and recorded.
func TestOutside(t *testing.T) {
	m := model.Start(t)
	proxy, err := url.Parse(m.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy)}}
	if resp, err := client.Get("https://one.example/"); err == nil {
		t.Errorf("got %s", resp.Status)
	}
	if resp, err := client.Get("http://two.example/"); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("got %v, %v", resp, err)
	}
	if got := fmt.Sprint(m.Outside()); got != "[one.example:443 two.example]" {
		t.Errorf("recorded %s", got)
	}
}
