package xiaozhi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
)

// Identity is what a device shows with everything that it sends over HTTP.
type Identity struct {
	DeviceID string // its MAC, in lower case with colons
	ClientID string // a UUID
}

func (i Identity) set(h http.Header) {
	h.Set("Device-Id", i.DeviceID)
	h.Set("Client-Id", i.ClientID)
}

// maxReply is the longest answer that is read.
const maxReply = 64 << 10

// Explain sends a picture to where the server wants pictures, with a question, as
// a camera does, and returns what it is answered: that is what its tool returns.
func (d *Device) Explain(ctx context.Context, who Identity, question string, jpeg []byte) (string, error) {
	to := d.Vision()
	if to.URL == "" {
		return "", errors.New("Image explain URL or token is not set") // firmware's words
	}
	body, in := io.Pipe() // its length is not known before: it is sent in chunks
	form := multipart.NewWriter(in)
	form.SetBoundary("----ESP32_CAMERA_BOUNDARY") // it is a valid one
	go func() { in.CloseWithError(writePicture(form, question, jpeg)) }()
	defer body.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, body)
	if err != nil {
		return "", err
	}
	who.set(req.Header)
	req.Header.Set("Content-Type", "multipart/form-data; boundary="+form.Boundary())
	if to.Token != "" {
		req.Header.Set("Authorization", "Bearer "+to.Token)
	}
	resp, err := d.client().Do(req)
	if err != nil {
		return "", fmt.Errorf("Failed to upload photo: %w", err) // firmware's words
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("Failed to upload photo, status code: %d", resp.StatusCode) // firmware's words
	}
	return string(text), nil
}

// writePicture writes the two parts that a camera sends.
func writePicture(form *multipart.Writer, question string, jpeg []byte) error {
	if err := form.WriteField("question", question); err != nil {
		return err
	}
	part, err := form.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="file"; filename="camera.jpg"`},
		"Content-Type":        {"image/jpeg"},
	})
	if err != nil {
		return err
	}
	if _, err := part.Write(jpeg); err != nil {
		return err
	}
	return form.Close()
}
