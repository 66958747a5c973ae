package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// told stores an answer of some bytes, as a call would, and reports whether it was
// kept.
func (a *answers) told(device, tool string, size int) bool {
	asked := answerKey{device: device, tool: tool}
	a.end(device, false, a.begin(device, false), asked, &ferrule.Result{Value: make(json.RawMessage, size)})
	return a.devices[device].answers[asked] != nil
}

func (a *answers) knows(device, tool string) bool {
	return a.find(answerKey{device: device, tool: tool}, time.Hour) != nil
}

// TestMaxAnswers checks the maximum number of answers; the least recently used goes
// first.
func TestMaxAnswers(t *testing.T) {
	a := newAnswers()
	for i := range maxAnswers {
		a.told(fmt.Sprint("d", i%100), fmt.Sprint(i), 1)
	}
	a.knows("d0", "0") // so that the next one is the oldest
	a.told("new", "x", 1)
	if a.order.Len() != maxAnswers || !a.knows("d0", "0") || a.knows("d1", "1") || !a.knows("d2", "2") || !a.knows("new", "x") {
		t.Errorf("%d are kept", a.order.Len())
	}
}

// TestMaxAnswerBytes checks the limits on the size of one answer and of all.
func TestMaxAnswerBytes(t *testing.T) {
	a := newAnswers()
	if a.told("d", "large", maxAnswer) || a.bytes != 0 || len(a.devices) != 0 {
		t.Errorf("%d bytes and %d shelves of an answer that is too large", a.bytes, len(a.devices))
	}
	const size = maxAnswer - answerCost
	fit := maxAnswerBytes / maxAnswer
	for i := range 2 * fit {
		if !a.told("d", fmt.Sprint(i), size) {
			t.Fatalf("%d is not kept", i)
		}
	}
	if a.bytes != maxAnswerBytes || a.order.Len() != fit || a.knows("d", fmt.Sprint(fit-1)) || !a.knows("d", fmt.Sprint(fit)) {
		t.Errorf("%d bytes in %d answers", a.bytes, a.order.Len())
	}
}

// TestAnswersDropEmptyDevices checks that nothing is stored for a device without
// answers and calls.
func TestAnswersDropEmptyDevices(t *testing.T) {
	a := newAnswers()
	for i := range 1000 {
		device := fmt.Sprint("d", i)
		a.told(device, "x", 10)
		a.told(device, "x", 20) // in place of the first
		a.end(device, true, a.begin(device, true), answerKey{}, nil)
	}
	for i := range 10 { // too old when asked for
		device := fmt.Sprint("d", i)
		a.told(device, "x", 10)
		a.find(answerKey{device: device, tool: "x"}, 0)
	}
	if len(a.devices) != 0 || a.order.Len() != 0 || a.bytes != 0 {
		t.Errorf("%d shelves, %d answers, %d bytes are left", len(a.devices), a.order.Len(), a.bytes)
	}
}

// TestStagesAllocateNothing checks the stages without cache and without limits in
// reach.
func TestStagesAllocateNothing(t *testing.T) {
	var done ferrule.Result
	end := func(context.Context, *ferrule.Call) (*ferrule.Result, error) { return &done, nil }
	for _, perMinute := range []int{0, maxPerMinute} {
		config := DefaultConfig()
		config.PerMinute = perMinute
		handle := authorize(nil)(approve(nil)(cache(0, newAnswers())(limit(newCallers(config))(end))))
		for _, effect := range []ferrule.Effect{ferrule.Reads, ferrule.Changes} {
			call := &ferrule.Call{
				Principal: ferrule.Principal{Role: ferrule.Agent, Name: "robby"}, Device: "a", Tool: "x",
				Target: ferrule.Target{Device: &ferrule.Device{ID: "a"}, Tool: &ferrule.Tool{Name: "x", Effect: effect}},
			}
			if n := testing.AllocsPerRun(1000, func() { handle(t.Context(), call) }); n > 0 {
				t.Errorf("%s, %d per minute: %v allocations", effect, perMinute, n)
			}
		}
	}
}

// TestAnswerContentSize checks that content counts towards the size of an answer.
func TestAnswerContentSize(t *testing.T) {
	a := newAnswers()
	for name, content := range map[string]ferrule.Content{
		"picture": {Data: make([]byte, maxAnswer)},
		"text":    {Text: string(make([]byte, maxAnswer))},
		"link":    {Link: &ferrule.Resource{Icons: []ferrule.Icon{{Source: string(make([]byte, maxAnswer))}}}},
	} {
		asked := answerKey{device: "d", tool: name}
		a.end("d", false, a.begin("d", false), asked, &ferrule.Result{Content: []ferrule.Content{content}})
		if a.order.Len() != 0 || a.bytes != 0 {
			t.Errorf("a %s that is too large is kept", name)
		}
	}
}
