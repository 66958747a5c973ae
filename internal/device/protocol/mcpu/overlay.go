package mcpu

import _ "embed"

// Overlay describes the built-in methods of the protocol, which firmware does not: the
// arguments on boards without memory for schemas, effects, and the pins that each
// method works on.
//
//go:embed overlay.json
var Overlay []byte
