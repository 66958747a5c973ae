package hardware

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
)

// The ioctls of /dev/i2c-N.
const (
	i2cSetAddress   = 0x0703
	i2cGetAbilities = 0x0705
	i2cMessages     = 0x0707
	i2cSMBus        = 0x0720
)

// i2cRead is the flag of a message that reads.
const i2cRead = 1

// i2cMessage is struct i2c_msg of the kernel.
type i2cMessage struct {
	address, flags, length uint16
	data                   *byte
}

// i2cList is struct i2c_rdwr_ioctl_data of the kernel.
type i2cList struct {
	messages *i2cMessage
	count    uint32
}

// smbusCall is struct i2c_smbus_ioctl_data of the kernel.
type smbusCall struct {
	read, command uint8
	size          uint32
	data          *byte
}

// i2cFile is an open I2C bus.
type i2cFile struct {
	*os.File
	abilities uint
}

func (b *I2CBus) open() (i2cFile, error) {
	f, err := os.OpenFile(kernelfs.Path(fmt.Sprintf("dev/i2c-%d", b.number)), os.O_RDWR, 0)
	if err != nil {
		return i2cFile{}, fmt.Errorf("opening I2C bus %d: %w", b.number, i2cAccess.explain(err))
	}
	file := i2cFile{File: f}
	var abilities uintptr // an unsigned long
	if err := ioctl(f, i2cGetAbilities, unsafe.Pointer(&abilities)); err != nil {
		f.Close()
		return i2cFile{}, fmt.Errorf("%s is not an I2C bus: %w", f.Name(), err)
	}
	file.abilities = uint(abilities)
	return file, nil
}

// ioctl calls ioctl with a pointer.
func ioctl(f *os.File, request uintptr, value unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(value)); errno != 0 {
		return errno
	}
	return nil
}

// claim chooses the chip for the next transfers, and sends nothing.
func (f i2cFile) claim(address int) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), i2cSetAddress, uintptr(address))
	switch errno {
	case 0:
		return nil
	case unix.EBUSY:
		return errDriver
	}
	return errno
}

// transfer writes bytes and then reads some.
func (f i2cFile) transfer(how method, address int, write []byte, count int) ([]byte, error) {
	if how != plainI2C {
		return f.smbus(how, write, count)
	}
	read := make([]byte, count)
	var messages []i2cMessage
	if len(write) > 0 {
		messages = append(messages, i2cMessage{uint16(address), 0, uint16(len(write)), &write[0]})
	}
	if count > 0 {
		messages = append(messages, i2cMessage{uint16(address), i2cRead, uint16(count), &read[0]})
	}
	return read, ioctl(f.File, i2cMessages, unsafe.Pointer(&i2cList{&messages[0], uint32(len(messages))}))
}

// smbus does one transaction of SMBus.
func (f i2cFile) smbus(how method, write []byte, count int) ([]byte, error) {
	var data [maxBlock + 2]byte
	call := smbusCall{size: uint32(how), data: &data[0]}
	if len(write) > 0 {
		call.command = write[0]
	}
	if count > 0 {
		call.read = 1
	}
	switch how {
	case byteAt:
		copy(data[:], write[1:])
	case wordAt:
		if len(write) == 3 {
			binary.NativeEndian.PutUint16(data[:], binary.LittleEndian.Uint16(write[1:]))
		}
	case blockAt:
		data[0] = byte(max(count, len(write)-1))
		copy(data[1:], write[1:])
	}
	if err := ioctl(f.File, i2cSMBus, unsafe.Pointer(&call)); err != nil || count == 0 {
		return nil, err
	}
	switch how {
	case wordAt:
		return binary.LittleEndian.AppendUint16(nil, binary.NativeEndian.Uint16(data[:])), nil
	case blockAt:
		if int(data[0]) != count {
			return nil, fmt.Errorf("%d bytes arrived, expected %d", data[0], count)
		}
		return append([]byte(nil), data[1:1+count]...), nil
	}
	return append([]byte(nil), data[:count]...), nil
}

// probe reports whether a chip answers.
func (f i2cFile) probe(how method, address int) (bool, error) {
	var err error
	switch {
	case how == quick:
		_, err = f.smbus(quick, nil, 0)
	case f.abilities&canReadByte != 0:
		_, err = f.smbus(oneByte, nil, 1)
	default:
		_, err = f.transfer(plainI2C, address, nil, 1)
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return false, err
	}
	return err == nil, nil // without an answer, drivers have one of several error numbers
}
