//go:build linux

package linux

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
	"unsafe"
)

// The structures of V4L2, as bytes with offsets: their sizes are the same on 32-bit and 64-bit
// machines, except that of a buffer.
const (
	sizeCapability = 104
	sizeFmtDesc    = 64
	sizeReqBufs    = 20
	bufferType     = 1 // V4L2_BUF_TYPE_VIDEO_CAPTURE
	memoryMap      = 1 // V4L2_MEMORY_MMAP

	capCapture    = 0x00000001
	capStreaming  = 0x04000000
	capDeviceCaps = 0x80000000
)

// word is the size of a pointer, which V4L2 aligns its unions to.
const word = int(unsafe.Sizeof(uintptr(0)))

var (
	sizeFormat = 204 + (word-4)/4*4 // 208 on 64-bit: the union is aligned to a pointer
	pixOffset  = word               // of the union
	sizeBuffer = 68 + (word-4)*5    // 88 on 64-bit
)

// request returns the number of an ioctl of V4L2.
func request(direction, number uintptr, size int) uintptr {
	return direction<<30 | uintptr(size)<<16 | 'V'<<8 | number
}

const (
	toKernel   = 1
	fromKernel = 2
	both       = toKernel | fromKernel
)

// video is an open camera. It is not an os.File: Go's runtime would wait for its events, and a
// driver takes that for the wish to read pictures, which excludes mapping them.
type video struct {
	fd   int
	maps [][]byte
}

func openVideo(name string) (*video, error) {
	fd, err := syscall.Open(name, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return &video{fd: fd}, nil
}

func (v *video) close() {
	for _, m := range v.maps {
		syscall.Munmap(m)
	}
	syscall.Close(v.fd)
}

func (v *video) ioctl(direction, number uintptr, data []byte) error {
	for {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(v.fd), request(direction, number, len(data)), uintptr(unsafe.Pointer(&data[0])))
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return errno
		}
	}
}

func get(data []byte, at int) uint32    { return binary.NativeEndian.Uint32(data[at:]) }
func put(data []byte, at int, n uint32) { binary.NativeEndian.PutUint32(data[at:], n) }

// probeCamera returns the format to take pictures with, or 0 if it is not a camera or has none
// that is supported.
func probeCamera(name string) (format uint32, err error) {
	v, err := openVideo(name)
	if err != nil {
		return 0, err
	}
	defer v.close()
	caps := make([]byte, sizeCapability)
	if err := v.ioctl(fromKernel, 0, caps); err != nil {
		return 0, err
	}
	can := get(caps, 84)
	if can&capDeviceCaps != 0 {
		can = get(caps, 88)
	}
	if can&capCapture == 0 || can&capStreaming == 0 {
		return 0, nil
	}
	var offered []uint32
	for i := range uint32(64) {
		desc := make([]byte, sizeFmtDesc)
		put(desc, 0, i)
		put(desc, 4, bufferType)
		if v.ioctl(both, 2, desc) != nil {
			break
		}
		offered = append(offered, get(desc, 44))
	}
	for _, f := range []uint32{formatMJPEG, formatYUYV} {
		if slices.Contains(offered, f) {
			return f, nil
		}
	}
	return 0, nil
}

// takePicture takes one picture and returns it as a JPEG file.
func takePicture(ctx context.Context, name string, format uint32) ([]byte, error) {
	v, err := openVideo(name)
	if err != nil {
		return nil, err
	}
	defer v.close()
	f, err := v.setFormat(format)
	if err != nil {
		return nil, err
	}
	if err := v.mapBuffers(); err != nil {
		return nil, err
	}
	kind := make([]byte, 4)
	put(kind, 0, bufferType)
	if err := v.ioctl(toKernel, 18, kind); err != nil {
		return nil, fmt.Errorf("starting the camera: %w", err)
	}
	defer v.ioctl(toKernel, 19, kind)
	for range skipped {
		if _, err := v.next(ctx, f, false); err != nil {
			return nil, err
		}
	}
	for range maxBroken {
		picture, err := v.next(ctx, f, true)
		if err != nil || picture != nil {
			return picture, err
		}
	}
	return nil, errors.New("the camera sent only broken pictures")
}

// setFormat asks for a format and a size, and returns what the camera will send.
func (v *video) setFormat(format uint32) (*frame, error) {
	data := make([]byte, sizeFormat)
	put(data, 0, bufferType)
	pix := data[pixOffset:]
	put(pix, 0, wantedWidth)
	put(pix, 4, wantedHeight)
	put(pix, 8, format)
	put(pix, 12, 1) // progressive
	if err := v.ioctl(both, 5, data); err != nil {
		return nil, fmt.Errorf("setting the format: %w", err)
	}
	f := &frame{format: get(pix, 8), width: int(get(pix, 0)), height: int(get(pix, 4)), stride: int(get(pix, 16))}
	if f.format != format {
		return nil, fmt.Errorf("the camera sends %s instead of %s", formatName(f.format), formatName(format))
	}
	return f, nil
}

// mapBuffers maps the driver's buffers into memory and hands them over to it.
func (v *video) mapBuffers() error {
	req := make([]byte, sizeReqBufs)
	put(req, 0, 4)
	put(req, 4, bufferType)
	put(req, 8, memoryMap)
	if err := v.ioctl(both, 8, req); err != nil {
		return fmt.Errorf("asking for buffers: %w", err)
	}
	for i := range get(req, 0) {
		buf := newBuffer(i)
		if err := v.ioctl(both, 9, buf); err != nil {
			return fmt.Errorf("asking for a buffer: %w", err)
		}
		length := get(buf, lengthOffset)
		if length == 0 || length > maxFrame {
			return fmt.Errorf("the driver offers a buffer of %d bytes", length)
		}
		m, err := syscall.Mmap(v.fd, int64(get(buf, memoryOffset)), int(length), syscall.PROT_READ, syscall.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("mapping a buffer: %w", err)
		}
		v.maps = append(v.maps, m)
		if err := v.ioctl(both, 15, buf); err != nil {
			return fmt.Errorf("handing over a buffer: %w", err)
		}
	}
	return nil
}

// The offsets of fields of a buffer: index, type, bytes used, flags, field, time (two words on
// 64-bit, after padding), time code of 16 bytes, sequence, memory, the offset, the length.
var (
	timeOffset   = (20 + word - 1) / word * word
	sequenceAt   = timeOffset + 2*word + 16
	memoryAt     = sequenceAt + 4
	memoryOffset = (memoryAt + 4 + word - 1) / word * word
	lengthOffset = memoryOffset + word
)

func newBuffer(index uint32) []byte {
	buf := make([]byte, sizeBuffer)
	put(buf, 0, index)
	put(buf, 4, bufferType)
	put(buf, memoryAt, memoryMap)
	return buf
}

// next waits for a frame. If it is wanted, it is returned as JPEG, or as nil if it is broken.
func (v *video) next(ctx context.Context, f *frame, wanted bool) (picture []byte, err error) {
	buf := newBuffer(0)
	for {
		err := v.ioctl(both, 17, buf)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EAGAIN) {
			return nil, fmt.Errorf("waiting for a picture: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, errors.New("no picture came in time")
		case <-time.After(5 * time.Millisecond):
		}
	}
	index, used := int(get(buf, 0)), int(get(buf, 8))
	if index >= len(v.maps) || used > len(v.maps[index]) {
		return nil, errors.New("the driver returned an unknown buffer")
	}
	if f.data = v.maps[index][:used]; wanted {
		if picture, err = f.jpeg(); err != nil {
			picture = nil
		}
	}
	return picture, v.ioctl(both, 15, buf)
}
