package ferrule

// Verdict is what was decided about a call, and why. One that rules nothing
// forbids.
type Verdict struct {
	Ruling Ruling `json:"ruling"`
	// Why is told to whoever is not let through.
	Reason string `json:"reason"`
}

// Ruling is what a Verdict comes to.
type Ruling string

// The rulings. Ask lets a call through once a person has agreed to it.
const (
	Permit Ruling = "permit"
	Forbid Ruling = "forbid"
	Ask    Ruling = "ask"
)
