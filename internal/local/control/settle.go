package control

import "time"

// SettleTime limits how long a gateway waits until requested devices are online or
// failed, before it tells a client about them.
const SettleTime = 2 * time.Second
