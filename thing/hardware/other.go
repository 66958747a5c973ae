//go:build !linux

package hardware

import "os"

// supported reports whether the hardware of this system can be used.
const supported = false

type i2cFile struct {
	*os.File
	abilities uint
}

func (b *I2CBus) open() (i2cFile, error) { return i2cFile{}, ErrSystem }

func (i2cFile) claim(int) error { return ErrSystem }

func (i2cFile) transfer(method, int, []byte, int) ([]byte, error) { return nil, ErrSystem }

func (i2cFile) probe(method, int) (bool, error) { return false, ErrSystem }

func checkSPI(string) error { return ErrSystem }

func sendSPI(string, []byte) error { return ErrSystem }

func diskSpace(string) (total, free int64, err error) { return 0, 0, ErrSystem }

func currentNetwork(string) (ssid []byte, frequency float64) { return nil, 0 }
