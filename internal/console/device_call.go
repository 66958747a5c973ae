package console

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
	"github.com/ferrulehq/ferrule/internal/schema/form"
)

// Limits of calls from pages.
const (
	// callGrace is how long a page waits for a call before it says that the call waits.
	callGrace = 1500 * time.Millisecond
	// lookGrace is how long a page that asks again waits.
	lookGrace = 5 * time.Second
	// keepCall is how long the outcome of a call can be looked at.
	keepCall = 10 * time.Minute
	// maxCalls limits the calls of one person that run or can be looked at.
	maxCalls = 64
)

// runningCall is a call of a person that may outlive the request that started it.
type runningCall struct {
	id, device, tool string
	who              ferrule.Principal
	values           map[string]string
	// once names the form that was sent, with its arguments; it may be empty.
	once   string
	began  time.Time
	done   chan struct{}
	cancel context.CancelFunc

	// The following are set when done is closed.
	out   api.CallOutput
	err   error
	ended time.Time
}

// runningCalls are the calls of all people.
type runningCalls struct {
	mu  sync.Mutex
	all map[string]*runningCall
}

// startCall calls a tool. The call goes on if the browser leaves: what is sent cannot be taken
// back, and the person may look at the outcome later. A form that a browser sends twice is one
// call: the first is returned.
func (c *Console) startCall(v *visit, in api.CallInput, values map[string]string, once string) (*runningCall, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(v.ctx()))
	one := &runningCall{id: rand.Text(), device: in.Device, tool: in.Tool, who: v.who, values: values, began: time.Now(), done: make(chan struct{}), cancel: cancel}
	if once != "" {
		one.once = once + "\n" + in.Device + "\n" + in.Tool + "\n" + string(in.Arguments)
	}
	if first := c.calls.add(one); first != one {
		cancel()
		if first == nil {
			return nil, ferrule.Errorf(ferrule.Limited, "%d of your calls wait already", maxCalls).WithHint("wait until one of them has ended")
		}
		return first, nil
	}
	go func() {
		defer cancel()
		one.out, one.err = c.api.Call(ctx, v.who, in)
		one.ended = time.Now()
		close(one.done)
	}()
	return one, nil
}

// add adds a call and returns it, and drops calls that ended long ago. If the same form was
// sent before, it returns the call of that time; without room, nil.
func (r *runningCalls) add(one *runningCall) *runningCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[string]*runningCall)
	}
	running := 0
	var oldest *runningCall // of the person's calls that have ended
	for id, other := range r.all {
		switch ended := other.hasEnded(); {
		case ended && time.Since(other.ended) > keepCall:
			delete(r.all, id)
		case other.who.String() != one.who.String():
		case one.once != "" && other.once == one.once:
			return other
		case ended:
			running++
			if oldest == nil || other.ended.Before(oldest.ended) {
				oldest = other
			}
		default:
			running++
		}
	}
	if running >= maxCalls {
		if oldest == nil {
			return nil
		}
		delete(r.all, oldest.id)
	}
	r.all[one.id] = one
	return one
}

// find returns a call of a person.
func (r *runningCalls) find(who ferrule.Principal, device, id string) (*runningCall, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.all[id]
	if one == nil || one.who.String() != who.String() || one.device != device {
		return nil, ferrule.Errorf(ferrule.NotFound, "this call ended a while ago, or is not yours").WithHint("its outcome is on the page Activity")
	}
	return one, nil
}

// close cancels all calls.
func (r *runningCalls) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		one.cancel()
	}
}

func (r *runningCall) hasEnded() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// wait waits for the end of a call, for a while.
func (r *runningCall) wait(ctx context.Context, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// confirmView is a call that endangers something and waits for a yes.
type confirmView struct {
	// Arguments are sent again. Shown is what the person sees of them.
	Arguments, Shown string
	// Token binds the yes to what was shown. It is good once, for a while.
	Token string
	// Now is what is known about the device.
	Now string
	// Page reports whether this is a page, for browsers without scripts.
	Page bool
}

// callTool calls a tool with what a person filled in.
func (c *Console) callTool(v *visit) error {
	f, err := c.openDevice(v, "Control")
	if err != nil {
		return err
	}
	tool := f.Tool(v.who, v.r.PostFormValue("tool"))
	if tool == nil {
		return ferrule.Errorf(ferrule.NotFound, "%s has no tool %q", f.Device.ID, ferrule.Clean(v.r.PostFormValue("tool"), ferrule.MaxToolName)).
			WithHint("it may have changed; open its page again")
	}
	filled := readArguments(v.r, tool)
	view := c.toolAfter(v, f, tool, filled)
	if !filled.OK() {
		return c.renderTool(v, http.StatusUnprocessableEntity, f, view)
	}
	in := api.CallInput{Device: f.Device.ID, Tool: tool.Name, Arguments: schema.AnyObject(filled.Arguments)}
	once := v.r.PostFormValue("once")
	if tool.Effect == ferrule.Endangers {
		once = v.r.PostFormValue("confirmed")
		if !c.isConfirmed(v, f.Device, tool, filled.Arguments, once) {
			view.Confirm = &confirmView{Arguments: string(filled.Arguments), Shown: shownArguments(tool, filled.Arguments), Token: c.newConfirmation(v, f.Device, tool, filled.Arguments), Now: c.stateNow(v, f)}
			if v.isHTMX() {
				return c.renderTool(v, http.StatusOK, f, view)
			}
			view.Confirm.Page = true
			return c.renderDevice(v, http.StatusOK, f, page{}, "confirm-page", view)
		}
		in.Confirmed = true
	}
	for _, name := range tool.Secrets {
		delete(filled.Values, name)
	}
	one, err := c.startCall(v, in, filled.Values, once)
	if err != nil {
		view.Result = newResult(f, tool, nil, err)
		return c.renderTool(v, http.StatusOK, f, view)
	}
	one.wait(v.ctx(), callGrace)
	if !v.isHTMX() { // loading the page again must not send the form again
		return v.redirect("%s/calls/%s", f.Path, one.id)
	}
	return c.showCall(v, f, one, view)
}

// readArguments returns the arguments of a form: its fields, or JSON that was confirmed.
func readArguments(r *http.Request, tool *ferrule.Tool) form.Filled {
	if !r.PostForm.Has("args") {
		var files map[string][]*multipart.FileHeader
		if r.MultipartForm != nil {
			files = r.MultipartForm.File
		}
		return toolForm(tool).Read(r.PostForm, files, tool.Check)
	}
	filled := form.Filled{Values: make(map[string]string)}
	args, text, err := schema.DecodeArgs([]byte(r.PostFormValue("args")))
	if err != nil {
		filled.Others = []string{"The arguments are not valid: " + err.Error() + "."}
		return filled
	}
	filled.Arguments = text
	if tool.Check != nil {
		filled.Others = tool.Check(args)
	}
	for name, value := range args {
		if s, ok := value.(string); ok {
			filled.Values[name] = s
			continue
		}
		data, _ := json.Marshal(value) // it came from JSON
		filled.Values[name] = string(data)
	}
	return filled
}

// shownArguments returns arguments as people see them, without secrets; empty if there are
// none.
func shownArguments(tool *ferrule.Tool, args json.RawMessage) string {
	var out bytes.Buffer
	if json.Indent(&out, ferrule.EscapeHidden(tool.MaskArgs(args, true)), "", "  ") != nil || out.String() == "{}" {
		return ""
	}
	return ferrule.Clean(out.String(), maxShown)
}

// confirmTime is how long a person may think about a call that endangers something. Then the
// device may have changed, and the question is asked again.
const confirmTime = 5 * time.Minute

// newConfirmation returns a token for a yes of this person to exactly one call of a tool as it
// is now. Each token differs, so one that comes twice is the same yes.
func (c *Console) newConfirmation(v *visit, dev *ferrule.Device, tool *ferrule.Tool, args json.RawMessage) string {
	text := rand.Text() + "_" + strconv.FormatInt(time.Now().Unix(), 10)
	return text + "_" + c.confirmMAC(v, text, dev, tool, args)
}

// isConfirmed reports whether a token is good for a call.
func (c *Console) isConfirmed(v *visit, dev *ferrule.Device, tool *ferrule.Tool, args json.RawMessage, token string) bool {
	text, mac, _ := cutLast(token, "_")
	_, at, _ := cutLast(text, "_")
	seconds, err := strconv.ParseInt(at, 10, 64)
	return hmac.Equal([]byte(mac), []byte(c.confirmMAC(v, text, dev, tool, args))) && err == nil && time.Since(time.Unix(seconds, 0)) < confirmTime
}

func cutLast(text, separator string) (before, after string, ok bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return "", text, false
	}
	return text[:i], text[i+len(separator):], true
}

func (c *Console) confirmMAC(v *visit, text string, dev *ferrule.Device, tool *ferrule.Tool, args json.RawMessage) string {
	sum := hmac.New(sha256.New, []byte(c.key))
	for _, part := range []string{text, v.csrf, v.who.String(), dev.ID, string(dev.Kind), tool.Name, string(args)} {
		sum.Write([]byte(part))
		sum.Write([]byte{0})
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// toolAfter returns a tool with what the person filled in.
func (c *Console) toolAfter(v *visit, f deviceFrame, tool *ferrule.Tool, filled form.Filled) toolView {
	view := newTool(f, tool, c.values(v.ctx(), f))
	view.Open, view.Others, view.Once = true, filled.Others, rand.Text()
	for i := range view.Fields {
		field := &view.Fields[i]
		if value, ok := filled.Values[field.Name]; ok && !field.Secret {
			field.Value = value
		}
		field.Error = filled.Errors[field.Name]
	}
	return view
}

// showCall shows a call that has ended, or that it waits.
func (c *Console) showCall(v *visit, f deviceFrame, one *runningCall, view toolView) error {
	if !one.hasEnded() {
		view.Result = c.waiting(v, f, one)
		return c.renderTool(v, http.StatusOK, f, view)
	}
	var out *api.CallOutput
	if one.err == nil {
		if out = &one.out; view.Row == "switch" {
			view.State = one.values[view.Fields[0].Name]
			if view.State != "true" {
				view.State = "false"
			}
		}
	}
	view.Result = newResult(f, view.Tool, out, one.err)
	view.Result.At = one.ended
	return c.renderTool(v, http.StatusOK, f, view)
}

// renderTool writes a tool alone, or the page with it.
func (c *Console) renderTool(v *visit, status int, f deviceFrame, view toolView) error {
	if v.isHTMX() { // a form with errors is an answer, which browsers need not log
		return c.fragment(v, http.StatusOK, "tool", view)
	}
	return c.renderControl(v, status, f, &view)
}

// lookAtCall shows a call of the person again, after a while if it still waits.
func (c *Console) lookAtCall(v *visit) error {
	f, one, err := c.openCall(v)
	if err != nil {
		return err
	}
	tool := f.Tool(v.who, one.tool)
	if tool == nil {
		return ferrule.Errorf(ferrule.NotFound, "%s no longer has this tool", f.Device.ID).WithHint("the outcome of the call is on the page Activity")
	}
	if v.isHTMX() {
		one.wait(v.ctx(), lookGrace)
	}
	return c.showCall(v, f, one, c.toolAfter(v, f, tool, form.Filled{Values: one.values}))
}

// cancelCall stops waiting for a call. If it was sent, it may run.
func (c *Console) cancelCall(v *visit) error {
	f, one, err := c.openCall(v)
	if err != nil {
		return err
	}
	one.cancel()
	one.wait(v.ctx(), lookGrace)
	if v.isHTMX() {
		return c.lookAtCall(v)
	}
	return v.redirect("%s/calls/%s", f.Path, one.id)
}

func (c *Console) openCall(v *visit) (f deviceFrame, one *runningCall, err error) {
	if f, err = c.openDevice(v, "Control"); err != nil {
		return f, nil, err
	}
	one, err = c.calls.find(v.who, f.Device.ID, v.r.PathValue("call"))
	return f, one, err
}

// waiting says what a call waits for.
func (c *Console) waiting(v *visit, f deviceFrame, one *runningCall) *resultView {
	r := &resultView{outcome: outcomeWaiting, Device: f.Device.ID, CSRF: v.csrf, Call: f.Path + "/calls/" + one.id, At: one.began}
	r.Message = "No answer from " + f.Device.ID + " yet."
	for _, a := range c.approvalsOf(v, one) {
		r.Message, r.Approval, r.Until = "A person has to allow this call first.", true, a.Expires
		if a.Reason != "" {
			r.Message = "A person has to allow this call first: " + ferrule.Clean(a.Reason, ferrule.MaxReason) + "."
		}
	}
	return r
}

// approvalsOf returns the approvals that a call of the person waits for.
func (c *Console) approvalsOf(v *visit, one *runningCall) (all []ferrule.Approval) {
	if !v.who.Scopes.Has(ferrule.ScopeEndanger) {
		return nil
	}
	p, err := c.listApprovals(v.ctx(), v)
	if err != nil {
		return nil
	}
	for _, a := range p.Waiting {
		if a.Device == one.device && a.Tool == one.tool && a.Caller == one.who.String() {
			all = append(all, a.Approval)
		}
	}
	return all
}
