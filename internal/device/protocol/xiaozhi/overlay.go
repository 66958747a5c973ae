package xiaozhi

import _ "embed"

// Overlay is what is known about the tools that stock firmware has on every
// board, and what it does not say: effects, what takes long, and that a firmware
// cannot be fetched from a default.
//
//go:embed overlay.json
var Overlay []byte
