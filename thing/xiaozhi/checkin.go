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

// Settings are the settings that a device gets from the server after its start.
type Settings struct {
	// Code is shown until the device is activated; empty if it is.
	Code      string
	MQTT      *MQTTSettings      // nil if there is none
	WebSocket *WebSocketSettings // firmware uses it only without MQTT
}

// MQTTSettings are the settings of MQTT.
type MQTTSettings struct {
	Endpoint     string `json:"endpoint"`
	ClientID     string `json:"client_id"`
	Username     string `json:"username"`
	Password     string `json:"password"`
	PublishTopic string `json:"publish_topic"`
	KeepAlive    int    `json:"keepalive"`
}

// WebSocketSettings are the settings of the WebSocket.
type WebSocketSettings struct {
	URL   string `json:"url"`
	Token string `json:"token"`
	// Version is the framing of audio.
	Version int `json:"version"`
}

// CheckIn gets the settings from a server, as firmware does after its start.
func (d *Device) CheckIn(ctx context.Context, url string, identity Identity) (Settings, error) {
	body, err := json.Marshal(map[string]any{
		"version": 2, "language": "en-US", "mac_address": identity.DeviceID, "uuid": identity.ClientID,
		"minimum_free_heap_size": "8318916", // a string in firmware
		"application":            map[string]any{"name": "xiaozhi", "version": d.Version()},
		"board":                  map[string]any{"type": d.Name(), "mac": identity.DeviceID},
	})
	if err != nil {
		return Settings{}, err
	}
	return d.CheckInWith(ctx, url, identity, body)
}

// CheckInWith is CheckIn with another body, as some boards send it.
func (d *Device) CheckInWith(ctx context.Context, url string, identity Identity, body []byte) (Settings, error) {
	status, data, err := d.post(ctx, url, identity, body)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d %s", status, bytes.TrimSpace(data[:min(len(data), maxReason)]))
	}
	if err != nil {
		return Settings{}, fmt.Errorf("checking in: %w", err)
	}
	var reply struct {
		MQTT       *MQTTSettings         `json:"mqtt"`
		WebSocket  *WebSocketSettings    `json:"websocket"`
		Activation struct{ Code string } `json:"activation"`
	}
	if err := json.Unmarshal(data, &reply); err != nil {
		return Settings{}, fmt.Errorf("invalid settings: %w", err)
	}
	return Settings{Code: reply.Activation.Code, MQTT: reply.MQTT, WebSocket: reply.WebSocket}, nil
}

// Activate reports whether a device that shows a code has been activated. Firmware polls it.
func (d *Device) Activate(ctx context.Context, url string, identity Identity) (bool, error) {
	status, _, err := d.post(ctx, strings.TrimSuffix(url, "/")+"/activate", identity, []byte("{}"))
	switch {
	case err != nil:
		return false, fmt.Errorf("activating: %w", err)
	case status == http.StatusOK:
		return true, nil
	case status == http.StatusAccepted:
		return false, nil
	}
	return false, fmt.Errorf("activating: the server returned status %d", status)
}

// post sends a request with the headers of firmware.
func (d *Device) post(ctx context.Context, url string, identity Identity, body []byte) (status int, reply []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	identity.set(req.Header)
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
