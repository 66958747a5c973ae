package doctor

import (
	"context"
	"fmt"
	"runtime"
)

// versions compares the version of this program with that of the gateway.
func (d *Doctor) versions(context.Context) []Finding {
	all := []Finding{{Check: "ferrule", State: Fine, Found: fmt.Sprintf("ferrule %s (%s, %s/%s)", d.version, runtime.Version(), runtime.GOOS, runtime.GOARCH)}}
	switch running := d.gateway.status.Version; {
	case d.gateway.err != nil:
	case running == d.version:
		all = append(all, Finding{Check: "gateway", State: Fine, Found: "the running gateway has the same version"})
	default:
		all = append(all, Finding{
			Check: "gateway", State: Note, Found: fmt.Sprintf("the running gateway is ferrule %s, this command is %s", running, d.version),
			Next: "restart the gateway",
		})
	}
	return all
}
