package pipeline

import (
	"context"
	"fmt"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// largeAnswer is the size in bytes from which on the check of an answer may take
// longer than the rest of the call.
const largeAnswer = 16 << 10

// checkAnswer returns an error if an answer violates the schema that the device
// declares: callers rely on it. The check ends with ctx at the latest.
func checkAnswer(ctx context.Context, call *ferrule.Call, result *ferrule.Result) error {
	check := call.Target.Tool.CheckOutput
	if check == nil {
		return nil
	}
	var violations []string
	if len(result.Value) < largeAnswer {
		violations = check(result.Value)
	} else {
		done := make(chan []string, 1)
		go func() {
			defer func() {
				if r := recover(); r != nil {
					done <- []string{fmt.Sprintf("the check failed: %v", r)}
				}
			}()
			done <- check(result.Value) // its work has a limit, so it ends soon after ctx
		}()
		select {
		case violations = <-done:
		case <-ctx.Done():
			return ferrule.Errorf(ferrule.Failed, "%s ran on %s, but its answer of %d bytes could not be checked in time", call.Tool, call.Device, len(result.Value)).
				WithHint("ask for less at once, or allow more time")
		}
	}
	if len(violations) == 0 {
		return nil
	}
	e := ferrule.Errorf(ferrule.Failed, "%s ran on %s, but its answer violates its schema: %s", call.Tool, call.Device, strings.Join(violations, "; "))
	e.Details = violations
	return e
}

// cleanAnswers removes from the answers to a call what a reader does not see.
func cleanAnswers(next ferrule.Handler) ferrule.Handler {
	return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if report := call.Progress; report != nil {
			call.Progress = func(p ferrule.Progress) {
				if p.Log != nil {
					log := *p.Log
					log.Data = ferrule.CleanJSON(log.Data)
					p.Log = &log
				}
				report(p)
			}
		}
		result, err := next(ctx, call)
		if err != nil {
			e := ferrule.AsError(err)
			ferrule.CleanContent(e.Content)
			return nil, e
		}
		result.Clean()
		return result, nil
	}
}
