package main

import (
	"context"
	"fmt"
	"runtime"
)

// versions tells what runs here.
func (d *doctor) versions(context.Context) []finding {
	all := []finding{{Check: "ferrule", State: fine, Found: fmt.Sprintf("ferrule %s (%s, %s/%s)", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)}}
	switch theirs := d.gateway.status.Version; {
	case d.gateway.err != nil:
	case theirs == version():
		all = append(all, finding{Check: "gateway", State: fine, Found: "the gateway that runs is of the same version"})
	default:
		all = append(all, finding{
			Check: "gateway", State: note, Found: fmt.Sprintf("the gateway that runs is ferrule %s, and this is %s", theirs, version()),
			Next: "start it again, so that both are the same",
		})
	}
	return all
}
