package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestCheckPage: a user is only asked to open pages that say plainly where they lead.
func TestCheckPage(t *testing.T) {
	for page, ok := range map[string]bool{
		"https://example.com/login?a=b": true, "https://xn--pypal-4ve.com": true, "https://192.0.2.7:8443/": true, "https://[2001:db8::1]/": true, "HTTPS://EXAMPLE.COM": true,
		"http://example.com": false, "javascript:alert(1)": false, "https:example.com": false, "https:///login": false, "": false, "example.com": false,
		"https://user@example.com": false, "https://example.com:pass@evil.example": false, "https://раypal.com": false, "https://example.com\u202e/": false,
		"https://exa%6dple.com.": false, "https://example.com\\@evil.example": false, "file:///etc/passwd": false, "https://" + strings.Repeat("a", ferrule.MaxURI): false,
	} {
		if _, err := checkPage(page); (err == nil) != ok {
			t.Errorf("%q: %v", page, err)
		}
	}
}

// TestQuestionBudget: limits are per device, and for an hour.
func TestQuestionBudget(t *testing.T) {
	b := newQuestionBudget()
	now := time.Now()
	limit := ferrule.QuestionLimit{Count: 3, Tokens: 1000}
	for i, step := range []struct {
		device string
		tokens int
		after  time.Duration
		ok     bool
	}{
		{"a", 600, 0, true}, {"a", 600, 0, false}, {"a", 400, 0, true}, {"a", 1, 0, false}, {"b", 1000, 0, true},
		{"a", 1, 59 * time.Minute, false}, {"a", 1, time.Hour, true}, {"a", 1, time.Hour, true}, {"a", 1, time.Hour, true}, {"a", 1, time.Hour, false},
	} {
		if err := b.spend(step.device, "sampling", limit, step.tokens, now.Add(step.after)); (err == nil) != step.ok {
			t.Errorf("step %d: %v", i, err)
		}
	}
}

// records is a Journal in memory.
type records []ferrule.Entry

func (r *records) Append(e ferrule.Entry, _ bool) error {
	*r = append(*r, e)
	return nil
}

// TestQuestionsStage: by default a device may ask nothing, and a client that could be
// asked does not look so to it.
func TestQuestionsStage(t *testing.T) {
	var journal records
	asked := 0
	var said []string
	handle := func(limits ferrule.QuestionLimits) (can []ferrule.AskTarget, err error) {
		device := func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			can = call.Askable
			_, err = call.Ask(ctx, ferrule.Question{Text: "Open?"})
			return nil, nil
		}
		call := &ferrule.Call{
			Device: "robot", Tool: "move", Progress: func(p ferrule.Progress) { said = append(said, p.Message) }, Askable: []ferrule.AskTarget{ferrule.User, ferrule.Model, ferrule.Roots}, Target: ferrule.Target{Manifest: &ferrule.Manifest{Questions: limits}},
			Ask: func(_ context.Context, q ferrule.Question) (ferrule.Answer, error) {
				asked++
				if q.Text != "robot: Open?" {
					t.Errorf("asked %q", q.Text)
				}
				return ferrule.Answer{Given: true, Value: json.RawMessage(`"secret"`)}, nil
			},
		}
		questions(&journal, newQuestionBudget(), slog.New(slog.DiscardHandler))(device)(t.Context(), call)
		return can, err
	}
	can, err := handle(ferrule.QuestionLimits{})
	var denied *ferrule.Error
	if len(can) != 0 || asked != 0 || !errors.As(err, &denied) || denied.Code != ferrule.Denied {
		t.Errorf("can ask %q, asked %d times, %v", can, asked, err)
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "robot asked something (elicitation), and it was declined: ") {
		t.Errorf("the caller was told %q", said)
	}
	can, err = handle(ferrule.QuestionLimits{Elicitation: ferrule.QuestionLimit{Count: 1}})
	if len(can) != 1 || can[0] != ferrule.User || asked != 1 || err != nil || len(said) != 1 {
		t.Errorf("can ask %q, asked %d times, %v", can, asked, err)
	}
	if len(journal) != 2 || journal[0].Code != ferrule.Denied || journal[1].Message != "answered" || strings.Contains(string(journal[1].Args), "secret") {
		t.Errorf("recorded %+v", journal)
	}
}

// FuzzAttributedPrompt: whatever a device asks a model, the model reads first which device
// it is, and the device pays for the tokens.
func FuzzAttributedPrompt(f *testing.F) {
	f.Add([]byte(`{"messages":[],"maxTokens":5,"systemPrompt":"Be brief."}`))
	f.Add([]byte(`{"maxTokens":5,"MAXTOKENS":7,"\u017fystemPrompt":"x"}`))
	f.Fuzz(func(t *testing.T, prompt []byte) {
		out, tokens, err := attributedPrompt("robot", prompt)
		if err != nil {
			return
		}
		var p struct {
			System string `json:"systemPrompt"`
			Max    int    `json:"maxTokens"`
		}
		if json.Unmarshal(out, &p) != nil || !strings.HasPrefix(p.System, `The following comes from the device "robot"`) || tokens < min(p.Max, 1<<30) {
			t.Errorf("%s became %s, %d tokens", prompt, out, tokens)
		}
	})
}
