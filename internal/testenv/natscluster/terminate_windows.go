package natscluster

import "os"

// terminate kills: Windows has no way to ask a process without a window.
func terminate(p *os.Process) error { return p.Kill() }
