package xiaozhi

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// The files of a Ledger.
const (
	keyFile    = "toys.key"
	ledgerFile = "toys.jsonl"
)

// Ledger is Credentials with their files: the key, and a line for each time that
// something has changed about a device, of which the newest counts.
type Ledger struct {
	*Credentials
	file *os.File
	torn bool // the last line may have been cut off
}

// OpenLedger opens the ledger in a directory, or begins one.
func OpenLedger(dir string) (*Ledger, error) {
	key, err := readKey(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf("the key of credentials: %w", err)
	}
	path := filepath.Join(dir, ledgerFile)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l := &Ledger{torn: len(data) > 0 && !bytes.HasSuffix(data, []byte("\n"))}
	if l.Credentials, err = NewCredentials(key, parseLedger(data), l.keep); err != nil {
		return nil, fmt.Errorf("%s: %w; remove that file, and devices get other credentials when they start", filepath.Join(dir, keyFile), err)
	}
	l.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return l, err
}

// readKey reads the key, or makes one. It has its name once it is whole on disk: a power
// cut leaves no half of one, which would keep the gateway from starting.
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

// parseLedger reads lines. One that makes no sense was cut off when power failed.
func parseLedger(data []byte) (all []Acquaintance) {
	for line := range bytes.Lines(data) {
		var a Acquaintance
		if json.Unmarshal(line, &a) == nil && a.Address != "" {
			all = append(all, a)
		}
	}
	return all
}

// keep writes a line. That a device is new may be lost when power fails: then it is
// new once more. What its owner has decided is on disk before it counts.
func (l *Ledger) keep(a Acquaintance) error {
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if l.torn {
		line = append([]byte("\n"), line...)
	}
	_, err = l.file.Write(append(line, '\n'))
	l.torn = err != nil
	if decided := a.LetIn || a.ClientID == ""; err != nil || !decided {
		return err
	}
	return l.file.Sync()
}

// Close closes the files.
func (l *Ledger) Close() error { return l.file.Close() }
