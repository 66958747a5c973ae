package overlay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func TestViews(t *testing.T) {
	hash := strings.Repeat("a", 64)
	parse := func(views string) (*overlay.File, error) {
		return overlay.Parse([]byte(`{"match":{"device":"robot"},"tools":{},"views":{` + views + `}}`))
	}
	file, err := parse(fmt.Sprintf(`"ui://plot/x":{"sha256":%q,"origins":["https://tiles.example","wss://*.b.example:8443"]}`, hash))
	if err != nil {
		t.Fatal(err)
	}
	set := overlay.NewSet(file)
	if got := set.Apply("mcp", "k", "robot", &ferrule.Manifest{}).Views["ui://plot/x"]; got.SHA256 != hash || len(got.Origins) != 2 {
		t.Errorf("got %+v", got)
	}
	if got := set.Apply("mcp", "k", "other", &ferrule.Manifest{}).Views; got != nil {
		t.Errorf("got %+v", got)
	}
	for views, want := range map[string]string{
		`"https://x/y":{"sha256":"` + hash + `"}`: "must be URIs that begin with ui://",
		`"ui://x":{}`:                  "views.ui://x.sha256: must be 64 hexadecimal digits",
		`"ui://x":{"sha256":"ABCDEF"}`: "must be 64 hexadecimal digits",
		`"ui://x":{"sha256":"` + hash + `","origins":["https://a.example; script-src *"]}`:          "views.ui://x.origins: must be like https://example.com",
		`"ui://x":{"sha256":"` + hash + `","origins":["https://a.example'"]}`:                       "must be like",
		`"ui://x":{"sha256":"` + hash + `","origins":["http://a.example"]}`:                         "must be like",
		`"ui://x":{"sha256":"` + hash + `","origins":["*"]}`:                                        "must be like",
		`"ui://x":{"sha256":"` + hash + `","origins":["https://a\nb"]}`:                             "must be like",
		`"ui://x":{"sha256":"` + hash + `","origins":["https://` + strings.Repeat("a", 300) + `"]}`: "must be like",
	} {
		if _, err := parse(views); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", views, err, want)
		}
	}
}
