//go:build linux

package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/thing"
)

// writeText writes a value to a file that exists. One write is one operation of the driver.
func writeText(value string, parts ...string) error {
	f, err := os.OpenFile(filepath.Join(parts...), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}

// refusal returns a RefusedError if an error of the first write means that nothing was done:
// the file could not be opened, or the kernel refused the value.
func refusal(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && path.Op == "open" || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EBUSY) || errors.Is(err, fs.ErrPermission) {
		return &thing.RefusedError{Reason: fmt.Sprintf("Nothing was changed: %v%s", err, permissionHint(err))}
	}
	return fmt.Errorf("it may have changed: %w", err)
}

func permissionHint(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "; to learn which permission is missing, run `ferrule doctor` on the board"
	}
	return ""
}

// list returns the entries of a directory below the root whose names match, in natural order:
// hwmon2 before hwmon10. A directory that is missing has none.
func (b *Board) list(dir string, name *regexp.Regexp) (paths []string) {
	entries, _ := os.ReadDir(kernelfs.Path(dir)) // a kernel without this class has no directory
	for _, e := range entries {
		if name.MatchString(e.Name()) {
			paths = append(paths, kernelfs.Path(dir, e.Name()))
		}
	}
	slices.SortFunc(paths, natural)
	return paths
}

var digits = regexp.MustCompile(`[0-9]+`)

// natural compares texts, and the numbers in them by their value.
func natural(a, b string) int {
	pad := func(s string) string {
		return digits.ReplaceAllStringFunc(s, func(n string) string { return fmt.Sprintf("%020s", n) })
	}
	return strings.Compare(pad(a), pad(b))
}

// keyOf returns the key of a part: the place of its directory and its inode, which is another
// one after it was plugged in again.
func keyOf(path string) string {
	place, err := filepath.EvalSymlinks(path)
	if err != nil {
		place = path
	}
	var inode uint64
	if info, err := os.Stat(path); err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			inode = stat.Ino
		}
	}
	return fmt.Sprintf("%s#%d", place, inode)
}

// unit is the unit of a channel: how the name of its member ends, and what the driver's number
// is multiplied with.
type unit struct {
	name  string
	scale float64
}

// member returns the name of a channel with its unit.
func (u unit) member(name string) string {
	switch {
	case u.name == "":
		return name
	case name == "":
		return u.name
	}
	return name + "_" + u.name
}

// maxName is the length of the longest name of a part. A gateway shows 46 characters of the
// device's name and the tool's.
const maxName = 30

// slug makes a name of a text: lower case letters, digits and single underscores.
func slug(text string) string {
	var out strings.Builder
	for _, r := range strings.ToLower(text) {
		if out.Len() == maxName {
			break
		}
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			out.WriteRune(r)
		case out.Len() > 0 && !strings.HasSuffix(out.String(), "_"):
			out.WriteByte('_')
		}
	}
	return strings.Trim(out.String(), "_")
}

// clean returns a text of the hardware for a description. A USB device chooses its own name.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || strings.ContainsRune("`<>{}[]\"", r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if runes := []rune(text); len(runes) > 40 {
		text = string(runes[:40])
	}
	return strings.TrimSpace(text)
}

// busAddress matches the names of devices that are identified by where they are plugged in:
// 1-0048 on I2C, 28-00000abcdef0 on 1-Wire, spi0.1, 1-1.2:1.0 on USB.
var busAddress = regexp.MustCompile(`^([0-9]+-0*([0-9a-f]{1,4})|[0-9a-f]{2}-[0-9a-f]{12}|spi[0-9]+\.[0-9]+|[0-9]+-[0-9.]+:[0-9.]+)$`)

// placeName returns the name of a sensor: what it is, and the bus address of its device, so
// that a second one of the same sort does not change the name of the first.
func placeName(name, dir string) string {
	device, err := filepath.EvalSymlinks(filepath.Join(dir, "device"))
	if err != nil { // an IIO device is below its device, and has no link
		if device, err = filepath.EvalSymlinks(dir); err != nil {
			return slug(name)
		}
		device = filepath.Dir(device)
	}
	base := filepath.Base(device)
	if m := busAddress.FindStringSubmatch(base); m != nil {
		address := slug(base)
		if m[2] != "" { // I2C: 1-0048 is bus 1, address 48
			bus, _, _ := strings.Cut(base, "-")
			address = bus + "_" + m[2]
		}
		name = slug(name) // cut before the address, which makes it unique
		return slug(name[:min(len(name), max(0, maxName-1-len(address)))] + " " + address)
	}
	return slug(name)
}
