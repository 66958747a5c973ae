package builtin

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Reloader reads the configuration again.
type Reloader interface {
	// ReloadConfig returns what has changed, and what changes at the next start.
	ReloadConfig() (applied, restart []string, err error)
}

// ReloadInput has the arguments of reload.
type ReloadInput struct{}

// ReloadOutput is the result of reload.
type ReloadOutput struct {
	Applied []string `json:"applied" jsonschema:"what has changed"`
	Restart []string `json:"restart" jsonschema:"what changes when the gateway is started again"`
}

// Reload returns the tool reload.
func Reload(gateway Reloader) Tool {
	const text = "Reads the configuration, rules, overlays and tokens again. If anything is wrong, nothing changes."
	return Typed("reload", text, ferrule.Changes, func(context.Context, *ferrule.Call, ReloadInput) (ReloadOutput, error) {
		applied, restart, err := gateway.ReloadConfig()
		return ReloadOutput{applied, restart}, err
	}).ForPeople()
}
