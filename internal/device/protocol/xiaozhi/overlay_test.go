package xiaozhi_test

import (
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/protocol/xiaozhi"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// TestOverlay: the overlay corrects what firmware declares, and marks user-only tools.
func TestOverlay(t *testing.T) {
	file, err := overlay.Parse(xiaozhi.Overlay)
	if err != nil {
		t.Fatal(err)
	}
	effective := overlay.NewSet(file).Apply(xiaozhi.Name, "", "toy", &ferrule.Manifest{Tools: []ferrule.Tool{
		{Name: "self.get_device_status", Input: []byte(`{"type":"object","properties":{}}`)},
		{Name: "self.reboot", Input: []byte(`{"type":"object","properties":{}}`)},
		{Name: "self.upgrade_firmware", Input: []byte(`{"type":"object","properties":{"url":{"type":"string","default":"The URL of the firmware binary file to download and install"}}}`)},
		{Name: "self.otto.action"},
	}})
	for _, test := range []struct {
		tool   string
		effect ferrule.Effect
		user   bool
		args   string
		want   string
	}{
		{"self.get_device_status", ferrule.Reads, false, `{}`, ``},
		{"self.reboot", ferrule.Endangers, true, `{}`, ``},
		{"self.upgrade_firmware", ferrule.Endangers, true, `{}`, `url is missing`},
		{"self.upgrade_firmware", ferrule.Endangers, true, `{"url":"The URL of the firmware"}`, `url must match "^https?://", got "The URL of the firmware"`},
		{"self.upgrade_firmware", ferrule.Endangers, true, `{"url":"http://10.0.0.2/a.bin"}`, ``},
		{"self.otto.action", ferrule.Changes, false, `{}`, ``},
	} {
		tool := effective.Tool(test.tool)
		if tool.Effect != test.effect || tool.UserOnly != test.user || tool.Quarantine != "" {
			t.Errorf("%s: %s, for users only: %t, %s", test.tool, tool.Effect, tool.UserOnly, tool.Quarantine)
		}
		args, _, err := schema.DecodeArgs([]byte(test.args))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if tool.Check != nil {
			got = strings.Join(tool.Check(args), "; ")
		}
		if got != test.want {
			t.Errorf("%s %s:\n got %s\nwant %s", test.tool, test.args, got, test.want)
		}
	}
	if url := string(effective.Tool("self.upgrade_firmware").Input); strings.Contains(url, "default") {
		t.Errorf("the url has a default: %s", url)
	}
}
