package natscluster

import "os"

// terminate kills the process: Windows has no signal for a process without a window.
func terminate(p *os.Process) error { return p.Kill() }
