// Package attachment writes the binary parts of an answer to files: pictures, sound and
// other data of a device, which a terminal cannot show.
//
//	answer -> parts with data -> new files
//	       -> parts for JSON, with a path instead of the data
//
// A device chooses neither the name nor the place of a file, and no file is overwritten.
package attachment

import (
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Part is a part of an answer. If it had data, Path is the file that the data is in.
type Part struct {
	ferrule.Content
	Path  string `json:"path,omitempty"`
	Bytes int    `json:"bytes,omitempty"`
}

// maxNames is how many names are tried until one is free.
const maxNames = 1000

// Check returns an error if Save could not write to a file, before anything was called.
func Check(file string) error {
	if file == "" {
		return nil
	}
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s exists: name a file that does not", file)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return fmt.Errorf("there is no directory %s", filepath.Dir(file))
	}
	return nil
}

// Save writes each part with data to a new file, and returns all parts. The first file has
// the given name, or a name with the time if there is none; the others are numbered after
// it. On an error it returns the parts so far.
func Save(content []ferrule.Content, name string, now time.Time) ([]Part, error) {
	parts, files := make([]Part, 0, len(content)), 0
	for _, c := range content {
		part := Part{Content: c}
		if len(c.Data) > 0 {
			path := name
			if name == "" {
				path = "ferrule-" + now.Format("20060102-150405") + extension(c.MIME)
			}
			path, err := write(path, c.Data, name != "" && files == 0)
			if err != nil {
				return parts, err
			}
			part.Data, part.Path, part.Bytes = nil, path, len(c.Data)
			files++
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// write writes data to a new file and returns its absolute path. Unless the name is exact,
// a number is added to it if it is taken.
func write(name string, data []byte, exact bool) (string, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	end := filepath.Ext(path)
	base := strings.TrimSuffix(path, end)
	for n := 2; ; n++ {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) && !exact && n < maxNames {
			path = fmt.Sprintf("%s-%d%s", base, n, end)
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(data)
		return path, errors.Join(err, f.Close())
	}
}

// extension returns the end of the name of a file. A device may say anything about its data,
// so only common types have one of their own.
func extension(said string) string {
	kind, _, _ := mime.ParseMediaType(said)
	switch kind {
	case "image/png", "image/gif", "image/webp", "image/bmp", "audio/ogg", "audio/flac", "audio/aac", "video/mp4", "application/pdf", "application/zip":
		return "." + kind[strings.IndexByte(kind, '/')+1:]
	case "image/jpeg":
		return ".jpg"
	case "audio/wav", "audio/x-wav", "audio/wave":
		return ".wav"
	case "audio/mpeg":
		return ".mp3"
	case "application/json", "text/plain", "text/csv":
		return ".txt"
	}
	return ".bin"
}
