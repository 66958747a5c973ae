package mcpu

import _ "embed"

// Overlay is what the protocol itself says about its built-in methods, and
// firmware does not: arguments where the board has no room for schemas, effects,
// and which pins each method works on.
//
//go:embed overlay.json
var Overlay []byte
