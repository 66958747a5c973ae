package console

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Limits of a result on a page.
const (
	maxParts = 16
	maxMedia = 2 << 20  // bytes of an image or a sound
	maxShown = 16 << 10 // bytes of a text
	// shortText is the length of a text that is shown in the line of the outcome.
	shortText = 160
)

// resultView is how a call ended.
type resultView struct {
	outcome
	Device string
	At     time.Time
	Took   string
	Cached string
	// Parts are what the device answered.
	Parts []partView
	// More is the number of parts that are not shown.
	More int
	// Check is a link to the tool that says what the device does now; CheckName is its name.
	Check, CheckName string
	// Call is where to look at a call that waits. Approval reports whether it waits for a
	// person, until a time.
	Call     string
	CSRF     string
	Approval bool
	Until    time.Time
}

// partView is a part of an answer. One of its fields is set.
type partView struct {
	Short, Long string
	Image       template.URL
	Sound       template.URL
	Link        string
	Name        string
	Note        string
}

// newResult returns how a call ended.
func newResult(f deviceFrame, tool *ferrule.Tool, out *api.CallOutput, err error) *resultView {
	check := checkTool(f.Manifest, tool.Name)
	r := &resultView{outcome: outcomeOfError(err, check), Device: f.Device.ID, At: time.Now()}
	if err != nil {
		e := ferrule.AsError(err)
		if check != "" && e.MayHaveRun() {
			r.Check, r.CheckName, r.Next = f.Path+"#"+toolID(check), check, ""
		}
		for _, prefix := range []string{f.Device.ID + " refused " + tool.Name + ": ", tool.Name + " failed on " + f.Device.ID + ": "} {
			if said, ok := strings.CutPrefix(r.Message, prefix); ok {
				r.Message, r.Says = "", said
			}
		}
		r.add(f, e.Content)
		return r
	}
	r.Took = tookText(time.Duration(out.Took))
	if out.Age > 0 {
		r.Cached = time.Duration(out.Age).Round(time.Second).String()
	}
	r.add(f, out.Content)
	if raw, ok := out.Value.(json.RawMessage); ok && !r.says(raw) {
		r.Parts = append([]partView{textPart(valueText(raw))}, r.Parts...)
	}
	return r
}

// valueText returns a value of a device as text: a scalar alone, else JSON.
func valueText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var out bytes.Buffer
	if len(raw) <= shortText {
		json.Compact(&out, raw)
	} else {
		json.Indent(&out, raw, "", "  ")
	}
	return out.String()
}

// says reports whether a text of the answer has the same value: many devices send both.
func (r *resultView) says(raw json.RawMessage) bool {
	value, err := ferrule.CanonicalJSON(raw)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(r.Parts, func(p partView) bool {
		text, err := ferrule.CanonicalJSON([]byte(p.Short + p.Long))
		return err == nil && bytes.Equal(text, value) || p.Short+p.Long == valueText(raw)
	})
}

// add adds parts of an answer.
func (r *resultView) add(f deviceFrame, content []ferrule.Content) {
	for i, c := range content {
		if i == maxParts {
			r.More = len(content) - maxParts
			return
		}
		r.Parts = append(r.Parts, newPart(f, c))
	}
}

func newPart(f deviceFrame, c ferrule.Content) partView {
	switch c.Type {
	case ferrule.ImageContent:
		return mediaPart(c, "image")
	case ferrule.AudioContent:
		return mediaPart(c, "sound")
	case ferrule.LinkContent:
		if c.Link == nil {
			return partView{Note: "A link to nothing."}
		}
		return resourcePart(f, c.Link.URI, c.Link.Name)
	case ferrule.ResourceContent:
		if c.Text != "" {
			return textPart(c.Text)
		}
		if len(c.Data) > 0 && strings.HasPrefix(c.MIME, "image/") {
			return mediaPart(c, "image")
		}
		return resourcePart(f, c.URI, "")
	}
	return textPart(c.Text)
}

// textPart returns a text of a device.
func textPart(text string) partView {
	note := ""
	if len(text) > maxShown {
		note = fmt.Sprintf("The first %d KB of %d KB.", maxShown>>10, len(text)>>10)
	}
	text = strings.TrimSpace(ferrule.Clean(text, maxShown))
	if len(text) <= shortText && !strings.Contains(text, "\n") {
		return partView{Short: text}
	}
	return partView{Long: text, Note: note}
}

// resourcePart returns a link to a resource of the device.
func resourcePart(f deviceFrame, uri, name string) partView {
	name = strings.TrimSpace(ferrule.Clean(name, ferrule.MaxWord))
	if name == "" {
		name = ferrule.Clean(uri, ferrule.MaxWord)
	}
	return partView{Link: f.Path + "/resources?uri=" + url.QueryEscape(uri), Name: name}
}

// rasters are the types of images that a page shows. Others may have scripts, or are not
// understood by all browsers.
var rasters = []string{"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"}

// sounds are the types of sounds that a page offers.
var sounds = []string{"audio/wave", "audio/mpeg", "audio/aiff", "audio/basic", "application/ogg", "audio/mp4"}

// mediaPart returns an image or a sound. Its type is what its bytes say.
func mediaPart(c ferrule.Content, what string) partView {
	typ := http.DetectContentType(c.Data)
	switch {
	case len(c.Data) > maxMedia:
		return partView{Note: fmt.Sprintf("An %s of %d KB, which is too large to show.", what, len(c.Data)>>10)}
	case what == "image" && slices.Contains(rasters, typ):
		return partView{Image: dataURL(typ, c.Data), Name: "Picture of the device"}
	case what == "sound" && slices.Contains(sounds, typ):
		return partView{Sound: dataURL(typ, c.Data), Name: fmt.Sprintf("Sound, %d KB", len(c.Data)>>10)}
	}
	return partView{Note: fmt.Sprintf("An %s of the type %q, which cannot be shown.", what, ferrule.Clean(c.MIME, ferrule.MaxWord))}
}

// dataURL returns bytes as a URL. The type must be one of a list.
func dataURL(typ string, data []byte) template.URL {
	return template.URL("data:" + typ + ";base64," + base64.StdEncoding.EncodeToString(data))
}

// stateNow returns what is known about a device in one line, to decide on a call.
func (c *Console) stateNow(v *visit, f deviceFrame) string {
	var all []string
	for _, value := range c.values(v.ctx(), f) {
		if len(all) == 6 {
			break
		}
		all = append(all, value.Name+" "+value.Text())
	}
	if len(all) == 0 {
		return string(f.Device.State) + ", no values known"
	}
	return strings.Join(all, ", ")
}

// recentCalls are the newest calls of a device.
type recentCalls struct {
	Device string
	Calls  []recentCall
}

// recentCall is one line of the list.
type recentCall struct {
	Time    time.Time
	Outcome outcome
	Text    string
	By      string
	URL     string
}

// shownCalls is the number of recent calls that the page shows.
const shownCalls = 6

// recentCalls returns the newest calls of a device that the person may see.
func (c *Console) recentCalls(f deviceFrame) recentCalls {
	out := recentCalls{Device: f.Device.ID}
	for _, call := range c.api.RecentCalls(f.Who, f.Device.ID, shownCalls) {
		one := recentCall{Time: call.Time, Outcome: outcomeOf(call.Code, call.MayHaveRun), Text: callText(call.Tool, call.Args), By: callerName(call.Caller)}
		if call.Open() {
			one.Outcome = outcomeWaiting
			if call.Phase == ferrule.Intent {
				one.Outcome = outcomeMaybe
			}
		}
		out.Calls = append(out.Calls, one)
	}
	return out
}

// callText returns a call in one line: the tool and its arguments.
func callText(tool string, args json.RawMessage) string {
	var all map[string]json.RawMessage
	text := ferrule.Clean(tool, ferrule.MaxToolName)
	if json.Unmarshal(args, &all) != nil {
		return text
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text += " " + name + "=" + valueText(all[name])
		if len(text) > shortText {
			break
		}
	}
	return strings.Join(strings.Fields(ferrule.Clean(text, shortText)), " ")
}
