package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ferrulehq/ferrule/internal/journal"
)

// Exported is a sealed segment that was copied to an archive.
type Exported struct {
	Segment string `json:"segment"` // path in the archive
	Chain   string `json:"chain"`
	First   uint64 `json:"first"`
	Last    uint64 `json:"last"`
	// Old reports whether the archive had it already, and Removed whether it was removed
	// from the data directory.
	Old     bool `json:"old,omitempty"`
	Removed bool `json:"removed,omitempty"`
}

// PublicKey returns the public key of the node with this data directory.
func PublicKey(data string) (string, error) {
	key, err := journal.ReadPublicKey(data)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("no key in %s: the gateway creates it when it starts", data)
	}
	return string(key), err
}

// Export copies the sealed segments of a data directory to an archive and calls show with
// each. Each copy is verified with the key of the node; a damaged one ends the export. If
// remove is set, segments are removed from the data directory when the archive has them.
func Export(data, archive string, remove bool, show func(Exported) error) error {
	key, err := journal.ReadPublicKey(data)
	if err != nil {
		return err
	}
	segments, err := journal.Segments(data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(archive, 0o700); err != nil {
		return err
	}
	for _, path := range segments {
		e, err := export(path, archive, key)
		if err != nil {
			return err
		}
		if remove {
			if err := os.Remove(path); err != nil {
				return err
			}
			e.Removed = true
		}
		if err := show(e); err != nil {
			return err
		}
	}
	return nil
}

// export copies one segment, unless the archive has it.
func export(path, archive string, key journal.PublicKey) (Exported, error) {
	e := Exported{Segment: filepath.Join(archive, filepath.Base(path))}
	if _, err := os.Stat(e.Segment); err == nil {
		e.Old = true
		if same, err := sameContent(path, e.Segment); err != nil {
			return e, err
		} else if !same {
			return e, fmt.Errorf("%s differs from %s; both were kept. Move the copy away, then export again", e.Segment, path)
		}
	} else if err := copyFile(path, e.Segment+".part"); err != nil {
		return e, err
	} else if err := os.Rename(e.Segment+".part", e.Segment); err != nil {
		return e, err
	} else if dir, err := os.Open(archive); err == nil {
		dir.Sync() // the name must be on disk before the source is removed; not every system supports it
		dir.Close()
	}
	report, err := journal.VerifySegment(e.Segment, key) // what counts is what the archive has
	if err != nil {
		return e, err
	}
	if len(report.Findings) > 0 {
		return e, fmt.Errorf("%s is damaged: %s; it was kept in both places", e.Segment, report.Findings[0].What)
	}
	e.Chain, e.First, e.Last = report.Chain, max(report.First, 1), report.Last
	return e, nil
}

// sameContent reports whether two files are equal.
func sameContent(one, two string) (bool, error) {
	var sums [2][sha256.Size]byte
	for i, path := range []string{one, two} {
		f, err := os.Open(path)
		if err != nil {
			return false, err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return false, err
		}
		h.Sum(sums[i][:0])
	}
	return sums[0] == sums[1], nil
}

// copyFile copies a file and syncs the copy.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}
