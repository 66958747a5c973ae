package homeassistant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/describe"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxPicture limits the bytes of a picture.
const maxPicture = 4 << 20

// picture is the response to a call of describe.GetPicture.
type picture struct {
	MIME string `json:"mime"`
	Data []byte `json:"data"`
}

// isPicture reports whether a call is not about a service but a picture.
func (c *call) isPicture() bool { return c.Service == describe.GetPicture }

// startPicture begins to read a picture. It returns a function that waits for it.
func (l *link) startPicture(c *call) func(ctx context.Context, out any) error {
	return func(ctx context.Context, out any) error {
		domain, _, _ := strings.Cut(c.Entities[0], ".")
		data, mime, err := l.hub.client.Picture(ctx, l.conn, "/api/"+domain+"_proxy/"+c.Entities[0], maxPicture)
		if err != nil { // the connection may still be good
			return &api.Error{Code: "picture_failed", Message: "the picture cannot be read: " + err.Error()}
		}
		response, err := json.Marshal(map[string]any{"response": picture{mime, data}})
		if err != nil {
			return err
		}
		return json.Unmarshal(response, out)
	}
}

// readPicture returns the picture of an entity.
func (s *Session) readPicture(ctx context.Context, c *ferrule.Call, tool describe.Tool, args map[string]any) (*ferrule.Result, error) {
	w, message, err := s.prepare(c, tool, args)
	if err != nil {
		return nil, err
	}
	defer s.stopWaiting()
	if err := s.send(ctx, c, w, message); err != nil {
		return nil, err
	}
	for {
		s.mu.Lock()
		answer, broken := w.result, s.ended
		s.mu.Unlock()
		switch {
		case answer != nil && answer.Error != nil:
			return nil, ferrule.Errorf(ferrule.Failed, "%s of %s: %s", c.Tool, c.Device, ferrule.Clean(answer.Error.Message, ferrule.MaxText)).AfterSend()
		case answer != nil:
			return answer.picture()
		case broken != nil:
			return nil, ferrule.Errorf(ferrule.Unanswered, "the connection to Home Assistant broke: %w", broken).AfterSend()
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled while the picture was read").AfterSend()
			}
			return nil, ferrule.Errorf(ferrule.Unanswered, "Home Assistant did not send the picture in time").AfterSend()
		}
	}
}

// picture returns the picture in an answer as part of a result.
func (r *result) picture() (*ferrule.Result, error) {
	var got picture
	if err := json.Unmarshal(r.Response, &got); err != nil {
		return nil, ferrule.Errorf(ferrule.Failed, "reading the picture: %w", err).AfterSend()
	}
	return &ferrule.Result{Content: []ferrule.Content{
		{Type: ferrule.ImageContent, Data: got.Data, MIME: ferrule.Clean(got.MIME, ferrule.MaxWord)},
		{Type: ferrule.TextContent, Text: fmt.Sprintf("A picture of %d bytes.", len(got.Data))},
	}}, nil
}
