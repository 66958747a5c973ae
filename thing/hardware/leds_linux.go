package hardware

import (
	"fmt"
	"io"
	"os"
	"unsafe"
)

// The ioctls of /dev/spidevN.M.
const (
	spiSetMode  = 0x40016b01
	spiSetBits  = 0x40016b03
	spiSetSpeed = 0x40046b04
)

// checkSPI returns an error if a file is not an SPI port. It changes nothing.
func checkSPI(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening the SPI port: %w", spiAccess.explain(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return fmt.Errorf("%s is not an SPI port", file)
	}
	return nil
}

// sendSPI sends bytes in one transfer.
func sendSPI(file string, data []byte) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return refused("opening the SPI port: %v", spiAccess.explain(err))
	}
	defer f.Close()
	mode, bits, speed := uint8(0), uint8(8), uint32(spiSpeed)
	for _, setting := range []struct {
		request uintptr
		value   unsafe.Pointer
	}{{spiSetMode, unsafe.Pointer(&mode)}, {spiSetBits, unsafe.Pointer(&bits)}, {spiSetSpeed, unsafe.Pointer(&speed)}} {
		if err := ioctl(f, setting.request, setting.value); err != nil {
			return refused("%s cannot be set to %d Hz and 8 bits: %v", file, spiSpeed, err)
		}
	}
	n, err := f.Write(data)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	return err
}
