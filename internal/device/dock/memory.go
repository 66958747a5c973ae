package dock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Memory is what a node remembers of its devices across restarts: which address
// has which ID, whether it is trusted, what it was when it was last seen.
//
// It is a directory: a log of device records, of which the newest of each device
// counts, and the manifest of each Kind as the device gave it. A change costs a
// line; the log is written anew when most of it is old.
type Store struct {
	dir string
	log *slog.Logger

	mu        sync.Mutex
	file      *os.File
	lines     int         // in the file
	torn      bool        // the last line may have been cut off
	timer     *time.Timer // until the file is synced; nil if it need not be
	byID      map[string]*ferrule.Device
	byAddress map[string]*ferrule.Device
	kinds     map[ferrule.Kind]int // how many devices are of each
}

// memoryLine is one line of the log.
type memoryLine struct {
	Device *ferrule.Device `json:"device,omitempty"`
	Forget string          `json:"forget,omitempty"`
}

const (
	devicesFile  = "devices.jsonl"
	manifestsDir = "manifests"
	// spareLines is how many old lines are not worth writing the log anew.
	spareLines = 1000
)

// OpenMemory opens the memory in dir, or begins one. Devices that were online
// when the gateway ended unawares are offline since about then.
func OpenStore(dir string, log *slog.Logger) (*Store, error) {
	m := &Store{
		dir: dir, log: log,
		byID:      make(map[string]*ferrule.Device),
		byAddress: make(map[string]*ferrule.Device),
		kinds:     make(map[ferrule.Kind]int),
	}
	if err := os.MkdirAll(filepath.Join(dir, manifestsDir), 0o700); err != nil {
		return nil, fmt.Errorf("opening memory: %w", err)
	}
	path := filepath.Join(dir, devicesFile)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("opening memory: %w", err)
	}
	lastWrite := time.Now()
	if info, err := os.Stat(path); err == nil {
		lastWrite = info.ModTime()
	}
	for line := range bytes.Lines(data) {
		m.replay(line, lastWrite)
	}
	if err := m.rewrite(); err != nil {
		return nil, fmt.Errorf("opening memory: %w", err)
	}
	return m, nil
}

// replay takes one line in. A line that makes no sense was cut off when power
// failed, and is left out.
func (m *Store) replay(line []byte, lastWrite time.Time) {
	var l memoryLine
	if err := json.Unmarshal(line, &l); err != nil {
		m.log.Warn("memory: leaving out a line that makes no sense", "err", err)
		return
	}
	if l.Device == nil {
		m.take(l.Forget)
		return
	}
	if l.Device.State == ferrule.StateOnline {
		l.Device.State, l.Device.Since, l.Device.Reason = ferrule.StateOffline, lastWrite, "the gateway ended"
	}
	m.put(l.Device)
}

// put stores a device in the maps, in place of what had its ID or address.
func (m *Store) put(dev *ferrule.Device) {
	m.take(dev.ID)
	if old := m.byAddress[dev.Address]; old != nil {
		m.take(old.ID)
	}
	m.byID[dev.ID], m.byAddress[dev.Address] = dev, dev
	m.kinds[dev.Kind]++
}

// take removes a device from the maps.
func (m *Store) take(id string) {
	dev := m.byID[id]
	if dev == nil {
		return
	}
	delete(m.byID, id)
	delete(m.byAddress, dev.Address)
	if m.kinds[dev.Kind]--; m.kinds[dev.Kind] == 0 {
		delete(m.kinds, dev.Kind)
	}
}

// Devices lists what is remembered, in no order.
func (m *Store) Devices() []*ferrule.Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*ferrule.Device, 0, len(m.byID))
	for _, dev := range m.byID {
		all = append(all, dev)
	}
	return all
}

// Get returns the device with an ID.
func (m *Store) Get(id string) (*ferrule.Device, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dev, ok := m.byID[id]
	return dev, ok
}

// At returns the device at an address.
func (m *Store) At(address string) (*ferrule.Device, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dev, ok := m.byAddress[address]
	return dev, ok
}

// Keep remembers a device, in place of what was known of its ID or its address.
// The manifest is what the device said; nil if it is known already. It counts at
// once, even if it cannot be written; it is durable soon.
func (m *Store) Keep(dev *ferrule.Device, manifest *ferrule.Manifest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.byAddress[dev.Address]
	first := m.kinds[dev.Kind] == 0
	m.put(dev)
	var err error
	if manifest != nil && first {
		err = m.writeManifest(dev.Kind, manifest)
	}
	if old != nil {
		m.tidy(old.Kind)
	}
	if old == nil || old.ID != dev.ID || old.Trust != dev.Trust {
		m.syncSoon()
	}
	return errors.Join(err, m.write(memoryLine{Device: dev}))
}

// syncDelay is how long a new name may wait to be durable: many are new at once,
// and a sync takes a while.
const syncDelay = 200 * time.Millisecond

func (m *Store) syncSoon() {
	if m.timer != nil {
		return
	}
	m.timer = time.AfterFunc(syncDelay, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.timer == nil {
			return // it was closed
		}
		m.timer = nil
		if err := m.file.Sync(); err != nil {
			m.log.Warn("memory: names may not be durable", "err", err)
		}
	})
}

// Forget drops a device. That is durable when it returns.
func (m *Store) Forget(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if dropped, err := m.drop(id); !dropped || err != nil {
		return err
	}
	return m.file.Sync()
}

// fade drops a device about which nobody has decided anything.
func (m *Store) fade(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.drop(id)
	return err
}

// drop drops a device, if it is remembered. It is called with mu held.
func (m *Store) drop(id string) (dropped bool, err error) {
	dev := m.byID[id]
	if dev == nil {
		return false, nil
	}
	m.take(id)
	m.tidy(dev.Kind)
	return true, m.write(memoryLine{Forget: id})
}

// tidy removes the manifest of a Kind that no device is of any more.
func (m *Store) tidy(kind ferrule.Kind) {
	if kind == "" || m.kinds[kind] > 0 {
		return
	}
	if err := os.Remove(m.manifestPath(kind)); err != nil && !errors.Is(err, os.ErrNotExist) {
		m.log.Warn("memory: removing a manifest", "err", err)
	}
}

func (m *Store) manifestPath(kind ferrule.Kind) string {
	return filepath.Join(m.dir, manifestsDir, filepath.Base(string(kind))+".json")
}

func (m *Store) writeManifest(kind ferrule.Kind, manifest *ferrule.Manifest) error {
	data, err := json.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	if err := replaceFile(m.manifestPath(kind), data); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	return nil
}

// Manifest returns the manifest of a Kind, as a device of it gave it.
func (m *Store) Manifest(kind ferrule.Kind) (*ferrule.Manifest, error) {
	data, err := os.ReadFile(m.manifestPath(kind))
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	manifest := &ferrule.Manifest{}
	if err := json.Unmarshal(data, manifest); err != nil {
		return nil, fmt.Errorf("memory: the manifest of %s: %w", kind.Short(), err)
	}
	return manifest, nil
}

// write appends a line, and begins the log anew if most of it is old, or if the
// line before was cut off.
func (m *Store) write(l memoryLine) error {
	if m.torn || m.lines > 2*len(m.byID)+spareLines {
		if err := m.rewrite(); err != nil {
			return fmt.Errorf("memory: %w", err)
		}
		return nil
	}
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	if _, err := m.file.Write(append(data, '\n')); err != nil {
		m.torn = true
		return fmt.Errorf("memory: %w", err)
	}
	m.lines++
	return nil
}

// rewrite writes a log of just what is known.
func (m *Store) rewrite() error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, dev := range m.byID {
		if err := enc.Encode(memoryLine{Device: dev}); err != nil {
			return err
		}
	}
	if m.file != nil {
		m.file.Close() // a file that is open cannot be replaced everywhere
	}
	path := filepath.Join(m.dir, devicesFile)
	replaced := replaceFile(path, b.Bytes())
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	m.file, m.lines, m.torn = file, len(m.byID), replaced != nil
	return errors.Join(replaced, err)
}

// replaceFile writes a file whole, or leaves it as it was.
func replaceFile(path string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
		return err
	}
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		dir.Sync() // so that the name lasts, too; not every system can
		dir.Close()
	}
	return nil
}

// Close makes what is remembered durable.
func (m *Store) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer != nil {
		m.timer.Stop()
		m.timer = nil
	}
	return errors.Join(m.file.Sync(), m.file.Close())
}
