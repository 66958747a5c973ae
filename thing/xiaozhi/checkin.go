package xiaozhi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
	return checkIn(ctx, url, who, d.Name()+"/"+d.Version(), body)
}

func checkIn(ctx context.Context, url string, who Identity, agent string, body []byte) (Settings, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return Settings{}, err
	}
	who.set(req.Header)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Activation-Version", "1")
	req.Header.Set("User-Agent", agent)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Settings{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil || resp.StatusCode != http.StatusOK {
		return Settings{}, fmt.Errorf("asking for settings: %s", resp.Status)
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
