package hass

import "testing"

// TestOwnOrigin: what gateways publish for Home Assistant is never read as a device, so that
// nothing appears twice.
func TestOwnOrigin(t *testing.T) {
	h := newOffline(t, HubConfig{})
	h.config("homeassistant/device/ferrule_a/config", `{"device":{"identifiers":["ferrule_a"]},"origin":{"name":"Ferrule"},"components":{"relay":{"platform":"switch","unique_id":"a","command_topic":"ferrule/x/a/relay/set"}}}`)
	h.config("homeassistant/device/other/config", `{"device":{"identifiers":["other"]},"origin":{"name":"other"},"components":{"relay":{"platform":"switch","unique_id":"b","command_topic":"other/set"}}}`)
	if len(h.devices) != 1 || h.devices["home/other"] == nil || h.Status().Refused > 0 {
		t.Errorf("there are %d devices, and %d messages were refused", len(h.devices), h.Status().Refused)
	}
}
