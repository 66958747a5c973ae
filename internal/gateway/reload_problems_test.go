package gateway

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestReloadProblems checks that a reload says which files it read, which overlays apply to no
// device, and which tools cannot be called with the overlays.
func TestReloadProblems(t *testing.T) {
	dir := t.TempDir()
	cfg := config.Default()
	cfg.Listen, cfg.Overlays = "127.0.0.1:0", filepath.Join(dir, "overlays")
	file := filepath.Join(dir, "ferrule.yaml")
	g, err := New(Parts{Config: cfg, ConfigFile: file, Data: t.TempDir(), Log: slog.New(slog.DiscardHandler), Load: func() (config.Config, error) { return cfg, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	done, err := g.Reload()
	if want := []string{file + " (does not exist)", cfg.Overlays + " (does not exist)"}; err != nil || !slices.Equal(done.Read, want) || len(done.Problems) > 0 {
		t.Errorf("got %+v, %v", done, err)
	}
	if err := os.Mkdir(cfg.Overlays, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.Overlays, "kiln.yaml"), []byte("match: {device: kilm}\ntools: {start_kiln: {effect: endangers}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	done, err = g.Reload()
	if err != nil || len(done.Problems) != 1 || !strings.HasPrefix(done.Problems[0], "an overlay is for the device kilm, which is not known") || done.Read[1] != cfg.Overlays {
		t.Errorf("got %+v, %v", done, err)
	}
	m := &ferrule.Manifest{Model: "kiln", Tools: []ferrule.Tool{{Name: "start_kiln", Quarantine: `its job uses the tool "kiln_statsu" as poll, which the device does not have`}, {Name: "look"}}}
	g.Fleet.Put(&ferrule.Device{ID: "kiln", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, m, nil)
	want := []string{`kiln: start_kiln cannot be called: its job uses the tool "kiln_statsu" as poll, which the device does not have`}
	if got := g.unusable([]string{"kiln", "gone"}); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
