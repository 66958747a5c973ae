package homeassistant

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of what is shown.
const (
	maxAttribute = 4 << 10  // bytes of one attribute
	maxShown     = 64 << 10 // bytes of all states in a result
	maxResponse  = 1 << 20  // bytes of the response of a service
)

// constants are attributes that never change, or that the manifest has.
var constants = []string{
	"friendly_name", "icon", "supported_features", "device_class", "attribution", "restored", "editable", "state_class",
	"supported_color_modes", "code_format", "code_arm_required", "hvac_modes", "min_temp", "max_temp", "target_temp_step", "min_humidity", "max_humidity",
	"min_color_temp_kelvin", "max_color_temp_kelvin", "min_mireds", "max_mireds", "event_types", "percentage_step",
}

// visible returns the attributes that are shown to agents. Brief leaves out lists of what
// an agent can choose from.
func visible(attributes map[string]json.RawMessage, brief bool) map[string]json.RawMessage {
	shown := make(map[string]json.RawMessage)
	for name, value := range attributes {
		list := len(value) > 0 && value[0] == '[' && (strings.HasSuffix(name, "_list") || strings.HasSuffix(name, "_modes") || name == "options" || name == "available_tones")
		if home.Secret(name) || slices.Contains(constants, name) || string(value) == "null" || len(value) > maxAttribute || brief && list {
			continue
		}
		if value = home.Redact(value); value != nil {
			shown[ferrule.Clean(name, ferrule.MaxWord)] = value
		}
	}
	return shown
}

// shownState is a state as agents see it.
type shownState struct {
	State      string                     `json:"state"`
	Attributes map[string]json.RawMessage `json:"attributes,omitempty"`
	Since      *time.Time                 `json:"since,omitempty"`
}

// maxValue is the length of a state; Home Assistant has the same limit.
const maxValue = 255

// isPassword reports whether the state of an entity is a secret.
func isPassword(now home.State) bool { return now.Text("mode") == "password" }

// show returns a state as agents see it. The value of a hidden one is not shown.
func show(now home.State, hidden, brief bool) shownState {
	shown := shownState{State: ferrule.Clean(now.Value, maxValue), Attributes: visible(now.Attributes, brief)}
	if hidden || isPassword(now) {
		shown.State = home.HiddenValue
	}
	if !now.Changed.IsZero() {
		at := now.Changed.UTC().Truncate(time.Second)
		shown.Since = &at
	}
	return shown
}

// shownResponse returns the response of a service as agents see it; nil if there is none.
func shownResponse(response json.RawMessage) json.RawMessage {
	switch {
	case len(response) == 0 || string(response) == "null":
		return nil
	case len(response) > maxResponse:
		data, _ := json.Marshal(fmt.Sprintf("not shown: the response has %d bytes; the limit is %d", len(response), maxResponse))
		return data
	}
	return home.Redact(response)
}
