package hardware

import (
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ioctls of wireless extensions, which the kernel's Wi-Fi stack also answers.
const (
	getNetworkName = 0x8b1b
	getFrequency   = 0x8b05
)

// wirelessRequest is struct iwreq of the kernel, with its union as bytes or as a buffer.
type wirelessRequest struct {
	name [unix.IFNAMSIZ]byte
	data struct {
		pointer       *byte
		length, flags uint16
	}
	_ [8]byte // the union is longer than this member on 32-bit processors
}

type frequencyRequest struct {
	name     [unix.IFNAMSIZ]byte
	mantissa int32
	exponent int16
	_        [10]byte
}

// currentNetwork returns the name and the frequency in MHz of the network that an interface is
// in. They are zero if the driver does not report them.
func currentNetwork(name string) (ssid []byte, frequency float64) {
	if len(name) >= unix.IFNAMSIZ {
		return nil, 0
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0
	}
	defer unix.Close(fd)
	call := func(request uintptr, value unsafe.Pointer) bool {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(value))
		return errno == 0
	}
	text := make([]byte, 33)
	var n wirelessRequest
	copy(n.name[:], name)
	n.data.pointer, n.data.length = &text[0], 32
	if call(getNetworkName, unsafe.Pointer(&n)) && int(n.data.length) <= len(text) {
		ssid = text[:n.data.length]
	}
	var f frequencyRequest
	copy(f.name[:], name)
	if call(getFrequency, unsafe.Pointer(&f)) {
		if hertz := float64(f.mantissa) * math.Pow10(int(f.exponent)); hertz > 1e6 { // below, it is a channel
			frequency = hertz / 1e6
		}
	}
	return ssid, frequency
}
