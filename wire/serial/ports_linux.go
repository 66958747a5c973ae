package serial

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// native reads sysfs. The library would open each port of the mainboard to see
// whether it is one, and does not tell where a board is plugged in.
type native struct{ unixPaths }

// boardPort is the names of ports that boards are plugged into.
var boardPort = regexp.MustCompile(`^tty(ACM|USB|AMA|GS|XRUSB)[0-9]+$`)

func (native) list() ([]found, error) {
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return nil, err
	}
	var all []found
	for _, e := range entries {
		if boardPort.MatchString(e.Name()) {
			f := found{Path: filepath.Join("/dev", e.Name())}
			f.describe("/sys/class/tty/" + e.Name() + "/device")
			all = append(all, f)
		}
	}
	return all, nil
}

// describe reads what the kernel knows of the USB device of a port: device is
// the interface or a part of it, and the device with its ids stands above.
func (f *found) describe(device string) {
	at, err := filepath.EvalSymlinks(device)
	if err != nil {
		return
	}
	for ; at != "/" && at != "."; at = filepath.Dir(at) {
		if vid := attribute(at, "idVendor"); vid != "" {
			f.USB = true
			f.VID, f.PID = strings.ToUpper(vid), strings.ToUpper(attribute(at, "idProduct"))
			f.Serial, f.Product = attribute(at, "serial"), attribute(at, "product")
			return
		}
		if name := filepath.Base(at); strings.Contains(name, ":") {
			f.Place = name // the interface, such as 1-1.4:1.0
		}
	}
}

// attribute reads one word of sysfs, of which what cannot be shown is left out.
func attribute(dir, name string) string {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || len(data) > 4096 {
		return ""
	}
	return clean(string(data))
}
