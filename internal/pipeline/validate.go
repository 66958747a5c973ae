package pipeline

import (
	"context"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// validate decodes the arguments of a call and checks them. It reports all
// violations at once. What is sent to the device is exactly what was checked: the
// text has no duplicate members.
func validate() stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			args, text, err := schema.DecodeArgs(call.Args)
			if err != nil {
				return nil, ferrule.Errorf(ferrule.Invalid, "invalid arguments for %s on %s: %w", call.Tool, call.Device, err)
			}
			if check := call.Target.Tool.Check; check != nil {
				if violations := withoutSecrets(check(args), call.Target.Tool.Secrets); len(violations) > 0 {
					e := ferrule.Errorf(ferrule.Invalid, "invalid arguments for %s on %s: %s", call.Tool, call.Device, strings.Join(violations, "; ")).
						WithHint("to see what it takes, run `ferrule tools %s`", call.Device)
					e.Details = violations
					return nil, e
				}
			}
			call.Args, call.DecodedArgs = text, args
			return next(ctx, call)
		}
	}
}

// withoutSecrets removes the values of secret arguments from violations.
func withoutSecrets(violations, secrets []string) []string {
	for i, v := range violations {
		if name, _, _ := strings.Cut(v, " "); slices.Contains(secrets, name) {
			violations[i], _, _ = strings.Cut(v, ", got ")
		}
	}
	return violations
}
