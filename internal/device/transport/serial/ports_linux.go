package serial

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// native reads sysfs. The library would open each port of the mainboard to check it,
// and does not report the location of a board.
type native struct{ unixStat }

// boardPort matches the names of ports that boards are plugged into.
var boardPort = regexp.MustCompile(`^tty(ACM|USB|AMA|GS|XRUSB)[0-9]+$`)

func (native) list() ([]systemPort, error) {
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return nil, err
	}
	var all []systemPort
	for _, e := range entries {
		if boardPort.MatchString(e.Name()) {
			f := systemPort{Path: filepath.Join("/dev", e.Name())}
			if f.describe("/sys/class/tty/" + e.Name() + "/device") {
				all = append(all, f)
			}
		}
	}
	return all, nil
}

func (native) covers(path string) bool {
	return filepath.Dir(path) == "/dev" && boardPort.MatchString(filepath.Base(path))
}

// describe reads what the kernel knows about the USB device of a port. The path device
// is the interface or below; the USB device with the IDs is above. It returns false if
// the port is just disappearing.
func (f *systemPort) describe(device string) bool {
	at, err := filepath.EvalSymlinks(device)
	if _, gone := os.Lstat(filepath.Dir(device)); err != nil {
		return gone == nil && errors.Is(err, os.ErrNotExist) // a port without a device is not on USB
	}
	for ; at != "/"; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "idVendor")); err == nil {
			return f.read(at)
		}
		if _, number, ok := strings.Cut(filepath.Base(at), ":"); ok { // such as 1-1.4:1.0
			_, f.Interface, _ = strings.Cut(number, ".")
		}
	}
	return true
}

// read reads the attributes of a USB device. It returns false if they disappear.
func (f *systemPort) read(device string) bool {
	f.USB, f.Location = true, filepath.Base(device)
	for name, to := range map[string]*string{
		"idVendor": &f.VID, "idProduct": &f.PID, "serial": &f.Serial, "product": &f.Product, "devnum": &f.PlugID,
	} {
		data, err := os.ReadFile(filepath.Join(device, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false
		}
		*to = clean(string(data))
	}
	f.VID, f.PID = strings.ToUpper(f.VID), strings.ToUpper(f.PID)
	return f.VID != ""
}
