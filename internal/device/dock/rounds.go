package dock

import (
	"context"
	"errors"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxRounds is how often a device may want to know something more before it does what
// it was asked for.
const maxRounds = 10

// findOut asks the caller what a device wants to know: everything together, so that
// whoever asks a person can ask for all at once.
func findOut(ctx context.Context, call *ferrule.Call, wants ferrule.InputRequest) (*ferrule.InputRequest, error) {
	wants.Answers = make([]ferrule.Answer, len(wants.Questions))
	failures := make([]error, len(wants.Questions))
	var wg sync.WaitGroup
	for i, q := range wants.Questions {
		wg.Go(func() { wants.Answers[i], failures[i] = ask(ctx, call, q) })
	}
	wg.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, unfinished(ctx, call, err)
	}
	return &wants, nil
}

// ask asks the caller one thing.
func ask(ctx context.Context, call *ferrule.Call, q ferrule.Question) (ferrule.Answer, error) {
	if call.Ask == nil {
		e := ferrule.Errorf(ferrule.Refused, "there is nobody who can be asked")
		e.Needs = []ferrule.AskTarget{q.Needs()}
		return ferrule.Answer{}, e
	}
	return call.Ask(ctx, q)
}

// unfinished is why a call ends whose device wanted to know something first. It should
// not have begun, and nobody can be sure of that.
func unfinished(ctx context.Context, call *ferrule.Call, why error) error {
	out := ferrule.Errorf(ferrule.Failed, "%s wants to know something before it does %s: %w", call.Device, call.Tool, why)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ferrule.Errorf(ferrule.Cancelled, "cancelled while %s wanted to know something before it does %s", call.Device, call.Tool).AfterSend()
	case ctx.Err() != nil:
		out.Code = ferrule.Unanswered
	}
	var e *ferrule.Error
	if errors.As(why, &e) {
		out.Needs = e.Needs
	}
	return out
}
