package dock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Store remembers devices across restarts: which address has which ID, whether it is
// trusted, and its state when it was last seen.
//
// It is a directory with a log of device records, in which the last record of each
// device counts, and the original manifest of each Kind. A change appends one
// line. The log is rewritten when most of it is outdated.
type Store struct {
	dir string
	log *slog.Logger

	mu        sync.Mutex
	file      *os.File
	lines     int         // in the file
	torn      bool        // the last line may be incomplete
	timer     *time.Timer // until the next sync; nil if none is due
	byID      map[string]*ferrule.Device
	byAddress map[string]*ferrule.Device
	kinds     map[ferrule.Kind]int  // number of uses of each
	manifests map[ferrule.Kind]bool // known to be stored
	decisions map[kindDecision]bool
}

// storeLine is a line of the log.
type storeLine struct {
	Device *ferrule.Device `json:"device,omitempty"`
	Forget string          `json:"forget,omitempty"`
	// Decision is about devices of a Kind.
	Decision *kindDecision `json:"decision,omitempty"`
}

const (
	devicesFile  = "devices.jsonl"
	manifestsDir = "manifests"
	// spareLines is the number of outdated lines that do not justify a rewrite.
	spareLines = 1000
)

// OpenStore opens or creates the store in dir. Devices that were online when the
// gateway crashed are offline since the last write.
func OpenStore(dir string, log *slog.Logger) (*Store, error) {
	m := &Store{
		dir: dir, log: log,
		byID:      make(map[string]*ferrule.Device),
		byAddress: make(map[string]*ferrule.Device),
		kinds:     make(map[ferrule.Kind]int),
		manifests: make(map[ferrule.Kind]bool),
		decisions: make(map[kindDecision]bool),
	}
	if err := os.MkdirAll(filepath.Join(dir, manifestsDir), 0o700); err != nil {
		return nil, fmt.Errorf("opening the device store: %w", err)
	}
	path := filepath.Join(dir, devicesFile)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("opening the device store: %w", err)
	}
	lastWrite := time.Now()
	if info, err := os.Stat(path); err == nil {
		lastWrite = info.ModTime()
	}
	valid, altered := bytes.HasSuffix(data, []byte("\n")), make(map[string]bool)
	for _, l := range decodeLines(data) {
		m.lines++
		valid = m.replay(l, lastWrite, altered) && valid
	}
	if valid && len(altered) == 0 && !m.outdated() { // rewriting many devices takes long
		m.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	} else {
		err = m.rewrite()
	}
	if err != nil {
		return nil, fmt.Errorf("opening the device store: %w", err)
	}
	return m, nil
}

// decodedLine is a line of the log, or why it is not one.
type decodedLine struct {
	storeLine
	err error
}

// decodeLines decodes a log with all processors: there may be many devices.
func decodeLines(data []byte) []decodedLine {
	lines := slices.Collect(bytes.Lines(data))
	all := make([]decodedLine, len(lines))
	var wg sync.WaitGroup
	parts := runtime.GOMAXPROCS(0)
	for part := range parts {
		wg.Go(func() {
			for i := part; i < len(lines); i += parts {
				all[i].err = json.Unmarshal(lines[i], &all[i].storeLine)
			}
		})
	}
	wg.Wait()
	return all
}

// replay applies one line. Altered are the IDs of devices that are not as in the log. It skips an
// invalid line, and returns false: power failed while it was written.
func (m *Store) replay(l decodedLine, lastWrite time.Time, altered map[string]bool) (valid bool) {
	if l.err != nil {
		m.log.Warn("device store: invalid line skipped", "err", l.err)
		return false
	}
	if l.Decision != nil {
		m.replayDecision(*l.Decision)
		return true
	}
	if l.Device == nil {
		m.unindex(l.Forget)
		delete(altered, l.Forget)
		return true
	}
	delete(altered, l.Device.ID) // the last line counts
	if l.Device.State == ferrule.StateOnline {
		l.Device.State, l.Device.Since, l.Device.Reason = ferrule.StateOffline, lastWrite, "the gateway stopped unexpectedly"
		altered[l.Device.ID] = true
	}
	if l.Device.Trust == ferrule.TrustAdopted && l.Device.Accepted == "" { // an earlier version stored it
		l.Device.Accepted = l.Device.Kind
		altered[l.Device.ID] = true
	}
	m.index(l.Device)
	return true
}

// index adds a device to the maps and replaces any with the same ID or address.
func (m *Store) index(dev *ferrule.Device) {
	m.unindex(dev.ID)
	if old := m.byAddress[dev.Address]; old != nil {
		m.unindex(old.ID)
	}
	m.byID[dev.ID], m.byAddress[dev.Address] = dev, dev
	for _, kind := range kindsOf(dev) {
		m.kinds[kind]++
	}
}

// kindsOf returns the Kinds whose manifests are stored for a device: what is in use, what
// its owner accepted, what it offers, and what it was before it changed.
func kindsOf(dev *ferrule.Device) []ferrule.Kind {
	return []ferrule.Kind{dev.Kind, dev.Accepted, dev.Offered, dev.Previous}
}

// unindex removes a device from the maps.
func (m *Store) unindex(id string) {
	dev := m.byID[id]
	if dev == nil {
		return
	}
	delete(m.byID, id)
	delete(m.byAddress, dev.Address)
	for _, kind := range kindsOf(dev) {
		if m.kinds[kind]--; m.kinds[kind] == 0 {
			delete(m.kinds, kind)
		}
	}
}

// Devices returns all devices in no order.
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

// Keep stores a device and replaces any with the same ID or address. The manifest is
// the original one; nil if it is already stored, or is not to be stored. The change is visible at once,
// even if writing fails, and durable soon.
func (m *Store) Keep(dev *ferrule.Device, manifest *ferrule.Manifest) error {
	if manifest == nil {
		return m.keep(dev, nil)
	}
	return m.keep(dev, map[ferrule.Kind]*ferrule.Manifest{dev.Kind: manifest})
}

// keep is Keep with the manifests of any of the device's Kinds.
func (m *Store) keep(dev *ferrule.Device, manifests map[ferrule.Kind]*ferrule.Manifest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.byAddress[dev.Address]
	m.index(dev)
	var errs []error
	for kind, manifest := range manifests {
		if m.kinds[kind] > 0 && !m.hasManifest(kind) {
			errs = append(errs, m.writeManifest(kind, manifest))
		}
	}
	m.removeUnusedManifests(old)
	if old == nil || old.ID != dev.ID || old.Trust != dev.Trust || old.Accepted != dev.Accepted {
		m.syncSoon()
	}
	return errors.Join(append(errs, m.write(storeLine{Device: dev}))...)
}

// keepDurably stores a device whose manifests are stored. The change is on disk when it
// returns. If that fails, nothing is changed.
func (m *Store) keepDurably(dev *ferrule.Device) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.byAddress[dev.Address]
	m.index(dev)
	err := m.write(storeLine{Device: dev})
	if err == nil {
		err = m.file.Sync()
	}
	if err == nil {
		m.removeUnusedManifests(old)
		return nil
	}
	m.unindex(dev.ID)
	if old != nil {
		m.index(old)
	}
	m.torn = true // the next write replaces the file, without this line
	return fmt.Errorf("device store: %w", err)
}

// syncDelay is the time until a new ID is durable. Many devices may be new at once,
// and a sync is slow.
const syncDelay = 200 * time.Millisecond

func (m *Store) syncSoon() {
	if m.timer != nil {
		return
	}
	m.timer = time.AfterFunc(syncDelay, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.timer == nil {
			return // closed
		}
		m.timer = nil
		if err := m.file.Sync(); err != nil {
			m.log.Warn("device store: sync failed", "err", err)
		}
	})
}

// Forget removes a device. The removal is durable when it returns.
func (m *Store) Forget(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if dropped, err := m.drop(id); !dropped || err != nil {
		return err
	}
	return m.file.Sync()
}

// dropPending removes a pending device or one that has another address now, without
// waiting for the disk.
func (m *Store) dropPending(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.drop(id)
	return err
}

// drop removes a device if it is stored. It is called with mu held.
func (m *Store) drop(id string) (dropped bool, err error) {
	dev := m.byID[id]
	if dev == nil {
		return false, nil
	}
	m.unindex(id)
	m.removeUnusedManifests(dev)
	return true, m.write(storeLine{Forget: id})
}

// removeUnusedManifests removes the manifests that only an earlier record used; it may be
// nil.
func (m *Store) removeUnusedManifests(old *ferrule.Device) {
	if old == nil {
		return
	}
	for _, kind := range kindsOf(old) {
		m.removeUnusedManifest(kind)
	}
}

// removeUnusedManifest removes the manifest of a Kind without devices.
func (m *Store) removeUnusedManifest(kind ferrule.Kind) {
	if kind == "" || m.kinds[kind] > 0 {
		return
	}
	delete(m.manifests, kind)
	if err := os.Remove(m.manifestPath(kind)); err != nil && !errors.Is(err, os.ErrNotExist) {
		m.log.Warn("device store: removing a manifest failed", "err", err)
	}
}

func (m *Store) manifestPath(kind ferrule.Kind) string {
	return filepath.Join(m.dir, manifestsDir, filepath.Base(string(kind))+".json")
}

// dropManifest removes a manifest that is not the one of its Kind: an earlier version of
// the gateway computed Kinds differently. The next device brings it again.
func (m *Store) dropManifest(kind ferrule.Kind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	os.Remove(m.manifestPath(kind)) // it is checked again when it is read
	delete(m.manifests, kind)
}

// hasManifest reports whether the manifest of a Kind is stored.
func (m *Store) hasManifest(kind ferrule.Kind) bool {
	if !m.manifests[kind] {
		_, err := os.Stat(m.manifestPath(kind))
		m.manifests[kind] = err == nil
	}
	return m.manifests[kind]
}

func (m *Store) writeManifest(kind ferrule.Kind, manifest *ferrule.Manifest) error {
	data, err := json.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("device store: %w", err)
	}
	if err := replaceFile(m.manifestPath(kind), data); err != nil {
		return fmt.Errorf("device store: %w", err)
	}
	m.manifests[kind] = true
	return nil
}

// Manifest returns the original manifest of a Kind.
func (m *Store) Manifest(kind ferrule.Kind) (*ferrule.Manifest, error) {
	if !kind.Valid() { // it could name the file of another one
		return nil, fmt.Errorf("device store: %.80q is not a Kind", string(kind))
	}
	data, err := os.ReadFile(m.manifestPath(kind))
	if err != nil {
		return nil, fmt.Errorf("device store: %w", err)
	}
	manifest := &ferrule.Manifest{}
	if err := json.Unmarshal(data, manifest); err != nil {
		return nil, fmt.Errorf("device store: manifest of %s: %w", kind.Short(), err)
	}
	if is, err := manifest.Kind(); err != nil || is != kind {
		m.dropManifest(kind)
		return nil, fmt.Errorf("device store: manifest of %s has another Kind", kind.Short())
	}
	return manifest, nil
}

// write appends a line. It rewrites the log instead if most of it is outdated or the
// last line is incomplete.
func (m *Store) write(l storeLine) error {
	if m.torn || m.outdated() {
		if err := m.rewrite(); err != nil {
			return fmt.Errorf("device store: %w", err)
		}
		return nil
	}
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("device store: %w", err)
	}
	if _, err := m.file.Write(append(data, '\n')); err != nil {
		m.torn = true
		return fmt.Errorf("device store: %w", err)
	}
	m.lines++
	return nil
}

// outdated reports whether most of the log is outdated.
func (m *Store) outdated() bool { return m.lines > 2*(len(m.byID)+len(m.decisions))+spareLines }

// rewrite writes a log of the present devices and decisions.
func (m *Store) rewrite() error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, dev := range m.byID {
		if err := enc.Encode(storeLine{Device: dev}); err != nil {
			return err
		}
	}
	for d := range m.decisions {
		if err := enc.Encode(storeLine{Decision: &d}); err != nil {
			return err
		}
	}
	if m.file != nil {
		m.file.Close() // Windows cannot replace an open file
	}
	path := filepath.Join(m.dir, devicesFile)
	replaced := replaceFile(path, b.Bytes())
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	m.file, m.lines, m.torn = file, len(m.byID)+len(m.decisions), replaced != nil
	return errors.Join(replaced, err)
}

// replaceFile replaces a file atomically.
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
		dir.Sync() // makes the rename durable; not every system supports it
		dir.Close()
	}
	return nil
}

// Close syncs and closes the log.
func (m *Store) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer != nil {
		m.timer.Stop()
		m.timer = nil
	}
	return errors.Join(m.file.Sync(), m.file.Close())
}
