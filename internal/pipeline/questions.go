package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// questions lets a device ask its caller, within the limits that its owner set. Without
// them it may ask nothing. Each question names the device, and is recorded with what
// became of it; the answer is not, because it may be a secret.
func questions(journal Journal, budget *questionBudget, log *slog.Logger) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			// The node that holds the device decides about its questions.
			if call.Ask != nil && !call.Target.Remote && call.Device != ferrule.GatewayID && call.Target.Manifest != nil {
				q := &questioner{call: *call, limits: call.Target.Manifest.Questions, budget: budget, journal: journal, log: log}
				call.Ask = q.ask
				call.Askable = slices.DeleteFunc(slices.Clone(call.Askable), func(target ferrule.AskTarget) bool {
					_, limit := q.limits.For(target)
					return limit.Count == 0
				})
			}
			return next(ctx, call)
		}
	}
}

// questioner asks the questions of one call, also those that the device asks after it.
type questioner struct {
	call    ferrule.Call // as its caller made it
	limits  ferrule.QuestionLimits
	budget  *questionBudget
	journal Journal
	log     *slog.Logger
}

// ask asks the caller, if the device may, and records it.
func (q *questioner) ask(ctx context.Context, question ferrule.Question) (ferrule.Answer, error) {
	start := time.Now()
	shown, answer, err := q.answer(ctx, question)
	entry := record(&q.call, ferrule.Asked)
	entry.Args, entry.Took = q.summary(shown), ferrule.Duration(time.Since(start))
	switch {
	case err != nil:
		e := ferrule.AsError(err)
		entry.Code, entry.Message = e.Code, e.Message
	case answer.Given:
		entry.Message = "answered"
	case answer.Dismissed:
		entry.Message = "dismissed"
	default:
		entry.Message = "declined"
	}
	if jerr := q.journal.Append(entry, false); jerr != nil {
		q.log.Error("question not recorded", "call", q.call.ID, "device", q.call.Device, "tool", q.call.Tool, "err", jerr)
	}
	return answer, err
}

func (q *questioner) answer(ctx context.Context, question ferrule.Question) (shown ferrule.Question, answer ferrule.Answer, err error) {
	name, limit := q.limits.For(question.Needs())
	if limit.Count == 0 {
		if !question.Late && ctx.Err() == nil { // the device may answer as if nothing had happened
			q.call.Report(ferrule.Progress{Message: fmt.Sprintf("%s asked something (%s), and it was declined: its owner has not allowed questions; `questions` in an overlay allows them", q.call.Device, name)})
		}
		return question, answer, ferrule.Errorf(ferrule.Denied, "%s may not ask its callers anything by %s: its owner has not allowed it", q.call.Device, name).
			WithHint("the owner of this gateway can allow it with an overlay that has `questions`")
	}
	shown, tokens, err := attributed(q.call.Device, question)
	if err == nil {
		err = q.budget.spend(q.call.Device, name, limit, tokens, time.Now())
	}
	if err == nil {
		answer, err = q.call.Ask(ctx, shown)
	}
	return shown, answer, err
}

// maxRecorded is how many bytes of a question are recorded.
const maxRecorded = 2048

// summary returns what is recorded of a question.
func (q *questioner) summary(question ferrule.Question) json.RawMessage {
	name, _ := q.limits.For(question.Needs())
	text := question.Text
	if question.Target == ferrule.Model {
		text = string(question.Prompt)
	}
	data, err := json.Marshal(struct {
		Question string `json:"question"`
		Text     string `json:"text,omitempty"`
		URL      string `json:"url,omitempty"`
		Late     bool   `json:"late,omitempty"` // asked after the call
	}{name, ferrule.Clean(text, maxRecorded), ferrule.Clean(question.URL, maxRecorded), question.Late})
	if err != nil { // not with these types
		return nil
	}
	return data
}

// attributed returns a question that names the device, and how many tokens it may cost.
func attributed(device string, q ferrule.Question) (shown ferrule.Question, tokens int, err error) {
	switch q.Needs() {
	case ferrule.User:
		q.Text = device + ": " + q.Text
	case ferrule.Page:
		page, err := checkPage(q.URL)
		if err != nil {
			return q, 0, err
		}
		q.URL, q.Text = page.String(), fmt.Sprintf("%s: %s (the device %s wants you to open a page of %s)", device, q.Text, device, page.Hostname())
	case ferrule.Model:
		q.Prompt, tokens, err = attributedPrompt(device, q.Prompt)
	}
	return q, tokens, err
}

// pageHost is the name or the address of a host, as a browser looks it up: letters of
// other scripts, which may look like Latin ones, are written as xn--.
var pageHost = regexp.MustCompile(`^[0-9A-Za-z.-]+$|^[0-9A-Fa-f:.]+$`)

// checkPage returns the URL of a page that a user may be asked to open. It is encrypted,
// and says plainly where it leads.
func checkPage(text string) (*url.URL, error) {
	page, err := url.Parse(text)
	switch {
	case err != nil || len(text) > ferrule.MaxURI || ferrule.Clean(text, ferrule.MaxURI) != text:
		return nil, ferrule.Errorf(ferrule.Invalid, "invalid page from the device: it is not a URL that can be shown")
	case page.Scheme != "https" || page.Opaque != "":
		return nil, ferrule.Errorf(ferrule.Invalid, "invalid page from the device: the URL must begin with https://")
	case page.User != nil:
		return nil, ferrule.Errorf(ferrule.Invalid, "invalid page from the device: the URL must not have a user name before its host")
	case !pageHost.MatchString(page.Hostname()):
		return nil, ferrule.Errorf(ferrule.Invalid, "invalid page from the device: letters other than a to z in the name of a host must be written as xn--")
	}
	return page, nil
}

// bytesPerToken is a cautious estimate of the length of a token.
const bytesPerToken = 4

// attributedPrompt adds to a request to a model which device it comes from. Tokens is what
// question and answer may have together.
func attributedPrompt(device string, prompt json.RawMessage) (json.RawMessage, int, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(prompt, &members); err != nil || members == nil {
		return nil, 0, ferrule.Errorf(ferrule.Invalid, "invalid question of the device to a model: it is not an object")
	}
	system := fmt.Sprintf("The following comes from the device %q, not from the user.", device)
	for name, value := range members {
		if strings.EqualFold(name, "systemPrompt") { // some decoders ignore the case
			var own string
			if json.Unmarshal(value, &own) == nil && own != "" {
				system += "\n" + own
			}
			delete(members, name)
		}
	}
	quoted, err := json.Marshal(system)
	if err != nil { // not with a string
		return nil, 0, err
	}
	members["systemPrompt"] = quoted
	out, err := json.Marshal(members)
	if err != nil {
		return nil, 0, ferrule.Errorf(ferrule.Invalid, "invalid question of the device to a model: %w", err)
	}
	var limits struct {
		MaxTokens int `json:"maxTokens"`
	}
	if err := json.Unmarshal(out, &limits); err != nil || limits.MaxTokens <= 0 {
		return nil, 0, ferrule.Errorf(ferrule.Invalid, "invalid question of the device to a model: maxTokens must be greater than 0")
	}
	return out, len(out)/bytesPerToken + min(limits.MaxTokens, 1<<30), nil
}

// questionBudget counts the questions of devices. Only devices whose owner allows
// questions are in it.
type questionBudget struct {
	mu    sync.Mutex
	spent map[askedDevice]*spentQuestions
}

type askedDevice struct{ device, name string }

// spentQuestions is what a device has asked in an hour.
type spentQuestions struct {
	since         time.Time
	count, tokens int
}

func newQuestionBudget() *questionBudget {
	return &questionBudget{spent: make(map[askedDevice]*spentQuestions)}
}

// budgetPeriod is the period that limits are for.
const budgetPeriod = time.Hour

// spend counts a question, or returns why there is no room for it.
func (b *questionBudget) spend(device, name string, limit ferrule.QuestionLimit, tokens int, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := askedDevice{device, name}
	s := b.spent[key]
	if s == nil || now.Sub(s.since) >= budgetPeriod {
		s = &spentQuestions{since: now}
		b.spent[key] = s
	}
	hint := fmt.Sprintf("try again in %v, or raise the limit in the overlay of the device", (budgetPeriod - now.Sub(s.since)).Round(time.Minute))
	switch {
	case s.count >= limit.Count:
		return ferrule.Errorf(ferrule.Limited, "%s has used up its questions by %s: limit is %d per hour", device, name, limit.Count).WithHint("%s", hint)
	case limit.Tokens > 0 && tokens > limit.Tokens-s.tokens:
		return ferrule.Errorf(ferrule.Limited, "%s asks for up to %d tokens by %s: limit is %d per hour, and %d are left", device, tokens, name, limit.Tokens, limit.Tokens-s.tokens).WithHint("%s", hint)
	}
	s.count++
	s.tokens += tokens
	return nil
}
