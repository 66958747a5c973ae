package homeassistant

import _ "embed"

// Overlay has the effects of all tools, which devices do not declare, and how long some of
// them take.
//
//go:embed overlay.json
var Overlay []byte

// HomeOverlay lets the home itself wait for covers as devices do.
var HomeOverlay = []byte(`{"match": {"protocol": "` + HomeName + `"}, "tools": {"call_service": {"deadline": "65s"}}}`)
