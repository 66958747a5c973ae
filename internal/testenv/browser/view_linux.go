package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

// View is how a page is shown.
type View struct {
	// Width and Height are the size of the window; 1280 and 900 if they are 0.
	Width, Height int
	Dark          bool
	// Slow is how much slower the processor is; 0 changes nothing.
	Slow float64
	// NoScript turns scripts of pages off.
	NoScript bool
}

// Show changes how the page is shown. Motion is always reduced, so that pictures of the same
// page are equal.
func (b *Browser) Show(v View) {
	b.t.Helper()
	if v.Width == 0 {
		v.Width = 1280
	}
	if v.Height == 0 {
		v.Height = 900
	}
	scheme := "light"
	if v.Dark {
		scheme = "dark"
	}
	b.view = v
	b.size(v.Height)
	b.must("Emulation.setEmulatedMedia", map[string]any{"features": []any{
		map[string]any{"name": "prefers-color-scheme", "value": scheme},
		map[string]any{"name": "prefers-reduced-motion", "value": "reduce"},
	}}, nil)
	b.must("Emulation.setCPUThrottlingRate", map[string]any{"rate": max(1, v.Slow)}, nil)
	b.must("Emulation.setScriptExecutionDisabled", map[string]any{"value": v.NoScript}, nil)
}

// size sets the size of the window. Below 640 pixels, it is a phone.
func (b *Browser) size(height int) {
	b.t.Helper()
	b.must("Emulation.setDeviceMetricsOverride", map[string]any{"width": b.view.Width, "height": height, "deviceScaleFactor": 1, "mobile": b.view.Width < 640}, nil)
}

// Screenshot writes a picture of the whole page to a file, as PNG.
func (b *Browser) Screenshot(path string) {
	b.t.Helper()
	if b.view.Width == 0 {
		b.Show(View{})
	}
	var height int
	b.Eval(`document.fonts.ready.then(() => Math.ceil(document.documentElement.scrollHeight))`, &height)
	b.size(max(b.view.Height, height))
	defer b.size(b.view.Height)
	// The page is drawn in its new size before the picture is taken.
	b.Eval(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))`, nil)
	var got struct{ Data []byte }
	b.must("Page.captureScreenshot", map[string]any{"format": "png"}, &got)
	picture, err := png.Decode(bytes.NewReader(got.Data))
	if err != nil {
		b.t.Fatal(err)
	}
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, fewColors(picture)); err != nil {
		b.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, small.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// Axe returns what axe-core finds wrong with the page: barriers for people with disabilities.
// Rules are those of axe-core that are checked; all if there are none.
// FERRULE_TEST_CHECKERS is the folder that the script install has filled; without it, the
// test is skipped.
func (b *Browser) Axe(rules ...string) (violations []string) {
	b.t.Helper()
	var found []struct {
		ID, Help, Impact string
		Nodes            []struct {
			HTML    string
			Summary string `json:"failureSummary"`
		}
	}
	options := map[string]any{"resultTypes": []string{"violations"}}
	if len(rules) > 0 {
		options["runOnly"] = rules
	}
	asked, err := json.Marshal(options)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Eval(fmt.Sprintf(`(async () => {
		if (!window.axe) { %s
		}
		const found = await axe.run(document, %s)
		return found.violations.map(v => ({id: v.id, help: v.help, impact: v.impact, nodes: v.nodes.slice(0, 3).map(n => ({html: n.html.slice(0, 200), failureSummary: n.failureSummary}))}))
	})()`, axe(b.t), asked), &found)
	for _, v := range found {
		nodes, err := json.Marshal(v.Nodes)
		if err != nil {
			b.t.Fatal(err)
		}
		violations = append(violations, fmt.Sprintf("%s (%s): %s %s", v.ID, v.Impact, v.Help, nodes))
	}
	return violations
}

// NeedCheckers returns the folder of axe-core, or skips the test.
func NeedCheckers(t testing.TB) (dir string) {
	t.Helper()
	dir = os.Getenv("FERRULE_TEST_CHECKERS")
	if dir == "" {
		t.Skip("FERRULE_TEST_CHECKERS is not set: see internal/testenv/browser")
	}
	return dir
}

// axe returns the script of axe-core.
func axe(t testing.TB) string {
	t.Helper()
	dir := NeedCheckers(t)
	script, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// ClearCache forgets the files that pages have loaded, so that the next page is a first view.
func (b *Browser) ClearCache() {
	b.t.Helper()
	b.must("Network.clearBrowserCache", nil, nil)
}
