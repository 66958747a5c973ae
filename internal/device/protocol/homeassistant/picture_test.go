package homeassistant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/describe"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestPicture: a picture is content of the result, and each way to fail has its code.
func TestPicture(t *testing.T) {
	const camera = "camera.door"
	offer := device([]home.Entity{{ID: camera, Key: "camera", Domain: "camera", Name: "Door"}})
	on(t, offer, func(t *testing.T, b *bench) {
		b.link.is(camera, "unavailable", "")
		b.fails(describe.GetPicture, `{}`, ferrule.Offline, false)
		b.sends()
		b.link.is(camera, "idle", "")
		b.link.onSend = func(c call) error {
			response, _ := json.Marshal(picture{MIME: "image/png", Data: []byte("pixels")})
			b.link.pass(channelResult, result{ID: c.ID, Response: response}, false)
			return nil
		}
		synctest.Wait()
		r, err := b.session.Invoke(t.Context(), &ferrule.Call{Device: "device", Tool: describe.GetPicture})
		if err != nil || len(r.Content) != 2 || r.Content[0].Type != ferrule.ImageContent || r.Content[0].MIME != "image/png" || !bytes.Equal(r.Content[0].Data, []byte("pixels")) {
			t.Errorf("got %+v, %v", r, err)
		}
		b.sends("camera.get_picture camera.door")
		b.link.onSend = func(c call) error {
			b.link.fails(c, "picture_failed", "the picture cannot be read: status 500")
			return nil
		}
		if e := b.fails(describe.GetPicture, `{}`, ferrule.Failed, true); !strings.Contains(e.Message, "status 500") {
			t.Errorf("got %s", e.Message)
		}
		b.link.onSend = nil
		b.fails(describe.GetPicture, `{}`, ferrule.Unanswered, true)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := b.session.Invoke(ctx, &ferrule.Call{Device: "device", Tool: describe.GetPicture}); ferrule.AsError(err).Code != ferrule.Cancelled {
			t.Errorf("got %v", err)
		}
		b.link.onSend = func(call) error {
			b.link.fail(errors.New("unplugged"))
			return nil
		}
		b.fails(describe.GetPicture, `{}`, ferrule.Unanswered, true)
	})
}
