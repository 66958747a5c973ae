package content_test

import (
	"fmt"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/content"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func TestValue(t *testing.T) {
	for text, want := range map[string]string{
		`true`: `true`, `21.5`: `21.5`, `{"a":1}`: `{"a":1}`, `"x"`: `"x"`,
		``: `""`, `21.5 °C`: `"21.5 °C"`, "say \"hi\"\n": `"say \"hi\"\n"`,
	} {
		if got := string(content.Value(text)); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestBinary(t *testing.T) {
	const lost = "(the device sent an image that cannot be decoded)"
	for data, want := range map[string]ferrule.Content{
		"UE5H": {Type: ferrule.ImageContent, MIME: "image/png", Data: []byte("PNG")},
		"":     {Type: ferrule.TextContent, Text: lost},
		"%":    {Type: ferrule.TextContent, Text: lost},
	} {
		if got := content.Binary(ferrule.ImageContent, "an image", data, "image/png"); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q: got %v, want %v", data, got, want)
		}
	}
}
