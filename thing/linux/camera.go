//go:build linux

package linux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"path/filepath"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/thing"
)

// findCamera finds a camera that gives JPEG or YUYV pictures. Opening one shows what it can do,
// and does not turn it on.
func (b *Board) findCamera(dir string) (*part, error) {
	index, err := kernelfs.Number(dir, "index")
	if err != nil || index != 0 { // another function of the same camera
		return nil, err
	}
	file := kernelfs.Path("dev", filepath.Base(dir))
	format, err := b.probe(file)
	if err != nil {
		return nil, err
	}
	if format == 0 {
		return nil, nil
	}
	name, err := kernelfs.Text(dir, "name")
	if err != nil {
		return nil, err
	}
	name = clean(name)
	return &part{name: slug("camera " + name), what: "the camera " + name, actions: []string{""}, declare: func(t *partTools) {
		thing.Tool(b.Device, t.name(""), fmt.Sprintf("Take a picture with the camera %s", name), func(ctx context.Context, _ struct{}) (thing.Image, error) {
			if err := t.part.check(); err != nil {
				return thing.Image{}, err
			}
			ctx, cancel := context.WithTimeout(ctx, captureTimeout)
			defer cancel()
			data, err := takePicture(ctx, file, format)
			if err != nil {
				return thing.Image{}, fmt.Errorf("the camera %s took no picture: %w%s", name, err, permissionHint(err))
			}
			return thing.Image{MIME: "image/jpeg", Data: data}, nil
		}, thing.Reads())
	}}, nil
}

const (
	// captureTimeout is how long a picture may take. Some cameras need seconds to start.
	captureTimeout = 20 * time.Second
	// skipped is how many frames are dropped while the camera adjusts its exposure.
	skipped = 4
	// maxBroken is how many frames in a row may be broken.
	maxBroken = 20
	// The size that is asked for. The camera chooses the nearest that it has.
	wantedWidth, wantedHeight = 1280, 720
	maxFrame                  = 32 << 20
)

// frame is a picture as the camera gives it.
type frame struct {
	format        uint32
	width, height int
	stride        int
	data          []byte
}

// jpeg returns a frame as a JPEG file.
func (f *frame) jpeg() ([]byte, error) {
	if f.format == formatMJPEG {
		return wholeJPEG(f.data)
	}
	if f.width < 2 || f.height < 1 || f.width > 1<<14 || f.height > 1<<14 || f.stride < f.width*2 || len(f.data) < f.stride*(f.height-1)+f.width*2 {
		return nil, fmt.Errorf("the driver returned %d bytes for %dx%d pixels", len(f.data), f.width, f.height)
	}
	picture := image.NewYCbCr(image.Rect(0, 0, f.width, f.height), image.YCbCrSubsampleRatio422)
	for y := range f.height {
		row := f.data[y*f.stride:]
		for x := 0; x+1 < f.width; x += 2 { // two pixels share their color: Y0 Cb Y1 Cr
			at := row[x*2:]
			picture.Y[y*picture.YStride+x], picture.Y[y*picture.YStride+x+1] = at[0], at[2]
			picture.Cb[y*picture.CStride+x/2], picture.Cr[y*picture.CStride+x/2] = at[1], at[3]
		}
	}
	var out bytes.Buffer
	err := jpeg.Encode(&out, picture, &jpeg.Options{Quality: 85})
	return out.Bytes(), err
}

// wholeJPEG returns a frame of a camera that compresses. The buffer may be longer than the
// picture, and a frame that was cut has no end.
func wholeJPEG(data []byte) ([]byte, error) {
	end := bytes.LastIndex(data, []byte{0xff, 0xd9})
	if !bytes.HasPrefix(data, []byte{0xff, 0xd8}) || end < 0 {
		return nil, errors.New("the camera sent an incomplete picture")
	}
	return bytes.Clone(data[:end+2]), nil
}

// fourCC returns the number of a pixel format.
func fourCC(name string) uint32 {
	return uint32(name[0]) | uint32(name[1])<<8 | uint32(name[2])<<16 | uint32(name[3])<<24
}

var (
	formatMJPEG = fourCC("MJPG")
	formatYUYV  = fourCC("YUYV")
	formatName  = func(f uint32) string {
		return strings.TrimRight(string([]byte{byte(f), byte(f >> 8), byte(f >> 16), byte(f >> 24)}), " ")
	}
)
