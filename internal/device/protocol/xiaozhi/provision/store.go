package provision

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// The files of a CredentialStore.
const (
	keyFile   = "toys.key"
	storeFile = "toys.jsonl"
)

// CredentialStore is Credentials on disk: a file with the key, and a file with one line
// for each change of a device. The last line of a device counts.
type CredentialStore struct {
	*Credentials
	file *os.File
	torn bool // the last line may be incomplete
}

// OpenCredentialStore opens the store in a directory, or creates it.
func OpenCredentialStore(dir string) (*CredentialStore, error) {
	key, err := readKey(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf("reading the key of device credentials: %w", err)
	}
	path := filepath.Join(dir, storeFile)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	s := &CredentialStore{torn: len(data) > 0 && !bytes.HasSuffix(data, []byte("\n"))}
	if s.Credentials, err = NewCredentials(key, parseStore(data), s.append); err != nil {
		return nil, fmt.Errorf("%s: %w. Remove the file, then restart the devices to give them new credentials", filepath.Join(dir, keyFile), err)
	}
	s.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return s, err
}

// readKey reads the key, or creates one. A new key is renamed into place when it is
// complete on disk: after a power cut, half a key would keep the gateway from starting.
func readKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if !errors.Is(err, os.ErrNotExist) {
		return key, err
	}
	key = make([]byte, minKey)
	rand.Read(key)
	file, err := os.CreateTemp(filepath.Dir(path), keyFile+".*")
	if err != nil {
		return nil, err
	}
	_, err = file.Write(key)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return key, err
}

// parseStore reads the lines. An invalid one was cut off by a power failure.
func parseStore(data []byte) (all []KnownDevice) {
	for line := range bytes.Lines(data) {
		var d KnownDevice
		if json.Unmarshal(line, &d) == nil && d.Address != "" {
			all = append(all, d)
		}
	}
	return all
}

// append writes a line. A decision of the owner is on disk before it takes effect. A
// new device may be lost in a power failure, and is then new again.
func (s *CredentialStore) append(d KnownDevice) error {
	line, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if s.torn {
		line = append([]byte("\n"), line...)
	}
	_, err = s.file.Write(append(line, '\n'))
	s.torn = err != nil
	if decided := d.Admitted || d.ClientID == ""; err != nil || !decided {
		return err
	}
	return s.file.Sync()
}

// Close closes the file.
func (s *CredentialStore) Close() error { return s.file.Close() }
