package pipeline_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// oneLock knows a lock whose code is secret.
type oneLock struct{}

func (oneLock) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	if id != "lock" {
		return nil, nil, false
	}
	dev := &ferrule.Device{ID: id, Kind: "k", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}
	return dev, &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "unlock", Effect: ferrule.Endangers, Secrets: []string{"code"}, Check: func(args map[string]any) []string {
		if code, _ := args["code"].(string); len(code) != 4 {
			return []string{`code must match "^\\d{4}$", got "` + code + `"`, "x is unknown"}
		}
		return nil
	}}}}, true
}

// TestSecrets checks that the device gets a secret, and that neither the journal nor an
// error has it.
func TestSecrets(t *testing.T) {
	for _, test := range []struct{ device, tool, args, want string }{
		{"lock", "unlock", `{"code":"7391","n":1}`, `{"code":"…","n":1}`},
		{"lock", "unlock", `{"code":"73917391"}`, `"…"`},
		{"lock", "unlock", `{"pin":"7391"}`, `"…"`},
		{"lock", "unlock", `{"code":"7391`, `"…"`},
		{"lock", "unlock", `{"code":"7391","Code":"7391"}`, `"…"`},
		{"lock", "none", `{"Code":"7391","n":1}`, `{"Code":"…","n":1}`},
		{"none", "unlock", `{"code":"7391"}`, `{"code":"…"}`},
	} {
		l := &ledger{}
		var sent json.RawMessage
		handle := pipeline.New(pipeline.Parts{
			Config: pipeline.DefaultConfig(), Journal: l, Log: slog.New(slog.DiscardHandler),
			Fleet: testFleet{oneLock{}, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
				sent = call.Args
				return &ferrule.Result{}, nil
			}},
		}).Handle
		_, err := handle(t.Context(), &ferrule.Call{Principal: anna, Device: test.device, Tool: test.tool, Args: json.RawMessage(test.args)})
		if (err == nil) != (string(sent) == test.args) {
			t.Errorf("%s: sent %s, %v", test.args, sent, err)
		}
		if err != nil && strings.Contains(err.Error(), "7391") {
			t.Errorf("%s: the error has it: %v", test.args, err)
		}
		for _, entry := range l.entries {
			if !strings.Contains(entry, " "+test.want) || strings.Contains(entry, "7391") {
				t.Errorf("%s: recorded %s", test.args, entry)
			}
		}
		if len(l.entries) == 0 || err == nil && !slices.ContainsFunc(l.entries, func(e string) bool { return strings.HasPrefix(e, "intent") }) {
			t.Errorf("%s: recorded %q", test.args, l.entries)
		}
	}
}
