package mcp

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// job polls a job, or cancels it.
func (p *player) job(command, rest string) {
	fields := strings.SplitN(rest, " ", 3)
	call := &ferrule.Call{Device: "board", Tool: fields[0], Operation: ferrule.PollJob, Job: &ferrule.Job{Handle: fields[1]}}
	if command == "stop" {
		call.Operation = ferrule.CancelJob
	}
	if len(fields) == 3 {
		call.Inputs = &ferrule.InputRequest{Questions: []ferrule.Question{{Name: "ok"}}, Answers: []ferrule.Answer{{Given: true, Value: json.RawMessage(fields[2])}}}
	}
	p.called = make(chan called, 1)
	go func() {
		result, err := p.session.(protocol.JobSession).Job(context.Background(), call)
		if err == nil && result.InputRequest != nil {
			err = ferrule.Errorf(ferrule.Refused, "asks %s", result.InputRequest.Questions[0].Text)
		}
		p.called <- called{result, err}
	}()
}
