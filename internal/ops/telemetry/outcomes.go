package telemetry

import (
	"slices"
	"sync/atomic"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ends are what may come of a call. What is not known is the last.
var ends = [...]string{
	"ok", string(ferrule.NotFound), string(ferrule.Denied), string(ferrule.Invalid), string(ferrule.Limited), string(ferrule.Pending),
	string(ferrule.Offline), string(ferrule.Busy), string(ferrule.Refused), string(ferrule.Failed), string(ferrule.Unanswered),
	string(ferrule.Cancelled), string(ferrule.Internal), other,
}

// acts are what calls ask for. What is not known is the last.
var acts = [...]string{
	"tool", string(ferrule.ReadResource), string(ferrule.GetPrompt), string(ferrule.Complete), string(ferrule.Subscribe), string(ferrule.Unsubscribe), other,
}

// outcomes counts calls, by what came of them, what they asked for, and who called.
type outcomes [len(ends)][len(acts)][len(roles)]atomic.Uint64

func (o *outcomes) add(call *ferrule.Call, err error) {
	o[codeIndex(outcome(err))][actIndex(call.Operation)][roleOf(call.Principal.Role)].Add(1)
}

// outcome is what came of a call, in a word.
func outcome(err error) string {
	if err == nil {
		return ends[0]
	}
	return string(ferrule.AsError(err).Code)
}

func codeIndex(code string) int {
	if i := slices.Index(ends[:], code); i >= 0 {
		return i
	}
	return len(ends) - 1
}

func actIndex(act ferrule.Operation) int {
	if act == ferrule.CallTool {
		return 0
	}
	if i := slices.Index(acts[1:], string(act)); i >= 0 {
		return i + 1
	}
	return len(acts) - 1
}

// each tells of all that was counted. Calls of tools are told of from the first moment,
// so that it is seen when the first of a sort fails; others once there was one.
func (o *outcomes) each(tell func(count uint64, code, act, role string)) {
	for c := range o {
		for a := range o[c] {
			for r := range o[c][a] {
				count := o[c][a][r].Load()
				if known := ends[c] != other && roles[r] != other; count > 0 || a == 0 && known {
					tell(count, ends[c], acts[a], roles[r])
				}
			}
		}
	}
}
