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

// Identity identifies a device in HTTP requests.
type Identity struct {
	DeviceID string // MAC address, in lower case with colons
	ClientID string // a UUID
}

func (i Identity) set(h http.Header) {
	h.Set("Device-Id", i.DeviceID)
	h.Set("Client-Id", i.ClientID)
}

// maxReply is the length of the longest HTTP response.
const maxReply = 64 << 10

// Explain sends an image and a question to the server's endpoint for images, as a camera does,
// and returns the answer, which is the result of the camera's tool.
func (d *Device) Explain(ctx context.Context, identity Identity, question string, jpeg []byte) (string, error) {
	to := d.Vision()
	if to.URL == "" {
		return "", errors.New("Image explain URL or token is not set") // text of the firmware
	}
	body, in := io.Pipe() // the length is unknown, so it is sent in chunks
	form := multipart.NewWriter(in)
	form.SetBoundary("----ESP32_CAMERA_BOUNDARY") // cannot fail
	go func() { in.CloseWithError(writeForm(form, question, jpeg)) }()
	defer body.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, body)
	if err != nil {
		return "", err
	}
	identity.set(req.Header)
	req.Header.Set("Content-Type", "multipart/form-data; boundary="+form.Boundary())
	if to.Token != "" {
		req.Header.Set("Authorization", "Bearer "+to.Token)
	}
	resp, err := d.client().Do(req)
	if err != nil {
		return "", fmt.Errorf("Failed to upload photo: %w", err) // text of the firmware
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("Failed to upload photo, status code: %d", resp.StatusCode) // text of the firmware
	}
	return string(text), nil
}

// writeForm writes the two parts of the form.
func writeForm(form *multipart.Writer, question string, jpeg []byte) error {
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
