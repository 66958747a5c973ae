package pipeline

import (
	"context"
	"encoding/json"
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
			args, text, err := checkArgs(call.Device, call.Target.Tool, call.Tool, call.Args)
			if err != nil {
				return nil, err
			}
			call.Args, call.DecodedArgs = text, args
			return next(ctx, call)
		}
	}
}

// CheckArgs returns the error that a call with these arguments would have.
func CheckArgs(device string, tool *ferrule.Tool, args json.RawMessage) error {
	_, _, err := checkArgs(device, tool, tool.Name, args)
	return err
}

func checkArgs(device string, tool *ferrule.Tool, name string, raw json.RawMessage) (args map[string]any, text json.RawMessage, err error) {
	args, text, err = schema.DecodeArgs(raw)
	if err != nil {
		return nil, nil, ferrule.Errorf(ferrule.Invalid, "invalid arguments for %s on %s: %w", name, device, err)
	}
	if tool.Check == nil {
		return args, text, nil
	}
	if violations := withoutSecrets(tool.Check(args), tool.Secrets); len(violations) > 0 {
		e := ferrule.Errorf(ferrule.Invalid, "invalid arguments for %s on %s: %s", name, device, strings.Join(violations, "; ")).
			WithHint("to see what it takes, run `ferrule tools %s`", device)
		e.Details = violations
		return nil, nil, e
	}
	return args, text, nil
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
