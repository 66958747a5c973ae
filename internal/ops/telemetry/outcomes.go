package telemetry

import (
	"slices"
	"sync/atomic"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// outcomeNames are the values of the label outcome. Unknown codes count as the last.
var outcomeNames = [...]string{
	"ok", string(ferrule.NotFound), string(ferrule.Denied), string(ferrule.Invalid), string(ferrule.Limited), string(ferrule.Pending),
	string(ferrule.Offline), string(ferrule.Busy), string(ferrule.Refused), string(ferrule.Failed), string(ferrule.Unanswered),
	string(ferrule.Cancelled), string(ferrule.Internal), other,
}

// operations are the values of the label operation. Unknown ones count as the last.
var operations = [...]string{
	"tool", string(ferrule.ReadResource), string(ferrule.GetPrompt), string(ferrule.Complete), string(ferrule.Subscribe), string(ferrule.Unsubscribe), other,
}

// outcomes counts calls by outcome, operation and role.
type outcomes [len(outcomeNames)][len(operations)][len(roles)]atomic.Uint64

func (o *outcomes) add(call *ferrule.Call, err error) {
	o[codeIndex(outcome(err))][operationIndex(call.Operation)][roleIndex(call.Principal.Role)].Add(1)
}

// outcome returns "ok" or the code of the error.
func outcome(err error) string {
	if err == nil {
		return outcomeNames[0]
	}
	return string(ferrule.AsError(err).Code)
}

func codeIndex(code string) int {
	if i := slices.Index(outcomeNames[:], code); i >= 0 {
		return i
	}
	return len(outcomeNames) - 1
}

func operationIndex(op ferrule.Operation) int {
	if op == ferrule.CallTool {
		return 0
	}
	if i := slices.Index(operations[1:], string(op)); i >= 0 {
		return i + 1
	}
	return len(operations) - 1
}

// each calls fn for every counter. Counters of tool calls are included while they are
// zero, so that a rate shows the first failure; others only once they have counted.
func (o *outcomes) each(fn func(count uint64, code, operation, role string)) {
	for c := range o {
		for a := range o[c] {
			for r := range o[c][a] {
				count := o[c][a][r].Load()
				if known := outcomeNames[c] != other && roles[r] != other; count > 0 || a == 0 && known {
					fn(count, outcomeNames[c], operations[a], roles[r])
				}
			}
		}
	}
}
