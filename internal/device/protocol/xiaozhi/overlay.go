package xiaozhi

import _ "embed"

// Overlay describes the tools that stock firmware has on every board: effects, long
// deadlines, and that the URL of a firmware has no default.
//
//go:embed overlay.json
var Overlay []byte
