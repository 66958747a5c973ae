package ferrule

import "time"

// Trace is one thing that was seen on the wire to a device.
type Trace struct {
	Time time.Time `json:"time"`
	// Way is in, out, or note for a remark of the gateway's.
	Direction string `json:"direction"`
	// Channel is where a medium that has several carried it.
	Channel string `json:"channel,omitempty"`
	// Data is the frame; bytes that are no text are escaped.
	Data string `json:"data,omitempty"`
	// Note is the remark, or what was noticed about the frame.
	Note string `json:"note,omitempty"`
}
