package xiaozhi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Settings is what a server tells a device after it has started.
type Settings struct {
	// Code is shown and said until the device is let in; empty if it is.
	Code      string
	MQTT      *MQTTSettings      // nil if there is none
	WebSocket *WebSocketSettings // firmware uses it only if there is no MQTT
}

// MQTTSettings is where and how a device connects over MQTT.
type MQTTSettings struct {
	Endpoint     string `json:"endpoint"`
	ClientID     string `json:"client_id"`
	Username     string `json:"username"`
	Password     string `json:"password"`
	PublishTopic string `json:"publish_topic"`
	KeepAlive    int    `json:"keepalive"`
}

// WebSocketSettings is where and how a device connects over a WebSocket.
type WebSocketSettings struct {
	URL   string `json:"url"`
	Token string `json:"token"`
	// Version is the framing of its sound.
	Version int `json:"version"`
}

// CheckIn asks a server for settings, as firmware does when it has started.
func (d *Device) CheckIn(ctx context.Context, url string, who Identity) (Settings, error) {
	body, err := json.Marshal(map[string]any{
		"version": 2, "language": "en-US", "mac_address": who.DeviceID, "uuid": who.ClientID,
		"minimum_free_heap_size": "8318916", // a text, in firmware
		"application":            map[string]any{"name": "xiaozhi", "version": d.Version()},
		"board":                  map[string]any{"type": d.Name(), "mac": who.DeviceID},
	})
	if err != nil {
		return Settings{}, err
	}
	return d.CheckInWith(ctx, url, who, body)
}

// CheckInWith is CheckIn with another body, as boards have that differ.
func (d *Device) CheckInWith(ctx context.Context, url string, who Identity, body []byte) (Settings, error) {
	status, data, err := d.post(ctx, url, who, body)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d %s", status, bytes.TrimSpace(data[:min(len(data), maxReason)]))
	}
	if err != nil {
		return Settings{}, fmt.Errorf("asking for settings: %w", err)
	}
	var reply struct {
		MQTT       *MQTTSettings         `json:"mqtt"`
		WebSocket  *WebSocketSettings    `json:"websocket"`
		Activation struct{ Code string } `json:"activation"`
	}
	if err := json.Unmarshal(data, &reply); err != nil {
		return Settings{}, fmt.Errorf("the settings make no sense: %w", err)
	}
	return Settings{Code: reply.Activation.Code, MQTT: reply.MQTT, WebSocket: reply.WebSocket}, nil
}

// Activate asks whether a device that shows a code is let in by now, as firmware
// does until it is.
func (d *Device) Activate(ctx context.Context, url string, who Identity) (bool, error) {
	status, _, err := d.post(ctx, strings.TrimSuffix(url, "/")+"/activate", who, []byte("{}"))
	switch {
	case err != nil:
		return false, fmt.Errorf("asking to be let in: %w", err)
	case status == http.StatusOK:
		return true, nil
	case status == http.StatusAccepted:
		return false, nil
	}
	return false, fmt.Errorf("asking to be let in: the server says %d", status)
}

// post sends a request with the headers of firmware.
func (d *Device) post(ctx context.Context, url string, who Identity, body []byte) (status int, reply []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	who.set(req.Header)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept-Language", "en-US")
	req.Header.Set("Activation-Version", "1")
	req.Header.Set("User-Agent", d.Name()+"/"+d.Version())
	resp, err := d.client().Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	reply, err = io.ReadAll(io.LimitReader(resp.Body, maxReply))
	return resp.StatusCode, reply, err
}
