package pipeline

import (
	"context"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// validate checks the arguments of a call, and names everything that is wrong
// with them at once. What goes on to the device is what was checked, in a text
// that cannot be read in two ways. What comes back is checked as well, where the
// device declares what it answers.
func validate() stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			args, text, err := schema.DecodeArgs(call.Args)
			if err != nil {
				return nil, ferrule.Errorf(ferrule.Invalid, "the arguments of %s cannot be used: %w", call.Tool, err)
			}
			if check := call.Target.Tool.Check; check != nil {
				if wrong := check(args); len(wrong) > 0 {
					e := ferrule.Errorf(ferrule.Invalid, "the arguments of %s do not fit: %s", call.Tool, strings.Join(wrong, "; ")).
						WithHint("`ferrule tools %s` shows what it takes", call.Device)
					e.Details = wrong
					return nil, e
				}
			}
			call.Args = text
			result, err := next(ctx, call)
			if err == nil {
				err = answered(call, result)
			}
			if err != nil {
				return nil, err
			}
			return result, nil
		}
	}
}

// answered tells what is wrong with an answer: who asked relies on what the device
// declares.
func answered(call *ferrule.Call, result *ferrule.Result) error {
	check := call.Target.Tool.CheckOutput
	if check == nil {
		return nil
	}
	wrong := check(result.Value)
	if len(wrong) == 0 {
		return nil
	}
	e := ferrule.Errorf(ferrule.Failed, "%s did %s, and its answer is not what it declares: %s", call.Device, call.Tool, strings.Join(wrong, "; "))
	e.Details = wrong
	return e
}
