package journal

import "time"

// ClockSkew is by how much the clocks of nodes may differ. A search by time across
// journals starts this much earlier.
const ClockSkew = 10 * time.Minute
