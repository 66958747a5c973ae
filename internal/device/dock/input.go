package dock

import (
	"context"
	"errors"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxRounds is how often a device may request input during one call.
const maxRounds = 10

// askAll asks the caller all questions of a device concurrently, so that they can be
// shown in one form.
func askAll(ctx context.Context, call *ferrule.Call, request ferrule.InputRequest) (*ferrule.InputRequest, error) {
	request.Answers = make([]ferrule.Answer, len(request.Questions))
	failures := make([]error, len(request.Questions))
	var wg sync.WaitGroup
	for i, q := range request.Questions {
		wg.Go(func() { request.Answers[i], failures[i] = ask(ctx, call, q) })
	}
	wg.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, inputError(ctx, call, err)
	}
	return &request, nil
}

// ask asks the caller one question.
func ask(ctx context.Context, call *ferrule.Call, q ferrule.Question) (ferrule.Answer, error) {
	if call.Ask == nil {
		e := ferrule.Errorf(ferrule.Refused, "the caller cannot be asked")
		e.Needs = []ferrule.AskTarget{q.Needs()}
		return ferrule.Answer{}, e
	}
	return call.Ask(ctx, q)
}

// inputError returns the error of a call whose questions were not answered. The
// device should not have acted yet, but this is not certain.
func inputError(ctx context.Context, call *ferrule.Call, cause error) error {
	out := ferrule.Errorf(ferrule.Failed, "%s on %s needs input: %w", call.Tool, call.Device, cause)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ferrule.Errorf(ferrule.Cancelled, "%s on %s was cancelled while it needed input", call.Tool, call.Device).AfterSend()
	case ctx.Err() != nil:
		out.Code = ferrule.Unanswered
	}
	var e *ferrule.Error
	if errors.As(cause, &e) {
		out.Needs = e.Needs
	}
	return out
}
