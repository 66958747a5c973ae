package hass

import _ "embed"

// Overlay has the effects of all tools, which devices do not declare, and how long some of
// them take.
//
//go:embed overlay.json
var Overlay []byte
