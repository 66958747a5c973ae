package halt

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// fileName is the file of the orders, in the data directory.
const fileName = "stop.state"

// The file has two slots, which are written in turn: a write that is cut short leaves the
// other one. They have their full size from the beginning, so that a stop can be written
// when the disk is full. Each is a header and JSON.
const (
	slots      = 2
	slotSize   = 256 << 10
	headerSize = 4 + 8 + sha256.Size // length, counter, and the hash of all that follows the hash
)

var errNoSpace = errors.New("the file " + fileName + " cannot be created in the data directory")

var errDamaged = errors.New("the file " + fileName + " is damaged")

// file is the open file of the orders.
type file struct {
	f       *os.File
	counter uint64 // of the newest slot
}

// openFile opens the file, or creates it, and returns its orders. The file is nil if it
// cannot be created. An error means that it exists and cannot be read.
func openFile(dir string) (*file, []Order, error) {
	path := filepath.Join(dir, fileName)
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		made, err := createFile(path)
		if err != nil {
			return nil, nil, nil
		}
		return made, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, slots*slotSize))
	if err != nil {
		return &file{f: f}, nil, err
	}
	out := &file{f: f}
	orders, found := []Order(nil), false
	for i := range slots {
		if counter, got, err := readSlot(data, i); err == nil && (!found || counter > out.counter) {
			out.counter, orders, found = counter, got, true
		}
	}
	if !found {
		return out, nil, errDamaged
	}
	return out, orders, nil
}

// createFile creates a file without orders. What is not used is random, because some file
// systems compress.
func createFile(path string) (*file, error) {
	data := make([]byte, slots*slotSize)
	rand.Read(data)
	text, err := encodeSlot(1, nil)
	if err != nil {
		return nil, err
	}
	copy(data[slotSize:], text) // slot 1, as its counter says
	f, err := os.CreateTemp(filepath.Dir(path), fileName+"-*")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, err
	}
	syncDir(filepath.Dir(path))
	return &file{f: f, counter: 1}, nil
}

// syncDir makes a new name durable, where the file system can.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		d.Sync()
		d.Close()
	}
}

// encodeSlot returns the beginning of a slot.
func encodeSlot(counter uint64, orders []Order) ([]byte, error) {
	text, err := json.Marshal(orders)
	if err != nil {
		return nil, err
	}
	if len(text) > slotSize-headerSize {
		return nil, fmt.Errorf("%d orders to stop are too many for %s", len(orders), fileName)
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(len(text)))
	b = binary.BigEndian.AppendUint64(b, counter)
	hash := sha256.Sum256(append(bytes.Clone(b), text...))
	return append(append(b, hash[:]...), text...), nil
}

// readSlot returns the orders in one slot of the file.
func readSlot(data []byte, slot int) (counter uint64, orders []Order, err error) {
	data = data[min(slot*slotSize, len(data)):min((slot+1)*slotSize, len(data))]
	if len(data) < headerSize {
		return 0, nil, errDamaged
	}
	length := binary.BigEndian.Uint32(data)
	counter = binary.BigEndian.Uint64(data[4:])
	if length > uint32(len(data)-headerSize) {
		return 0, nil, errDamaged
	}
	text := data[headerSize : headerSize+length]
	if hash := sha256.Sum256(append(bytes.Clone(data[:12]), text...)); !bytes.Equal(hash[:], data[12:headerSize]) {
		return 0, nil, errDamaged
	}
	if err := json.Unmarshal(text, &orders); err != nil {
		return 0, nil, err
	}
	for i, o := range orders {
		if err := o.check(); err != nil {
			return 0, nil, err
		}
		orders[i] = o.clean()
	}
	return counter, orders, nil
}

// write stores the orders. It takes no more space on the disk.
func (f *file) write(orders []Order) error {
	data, err := encodeSlot(f.counter+1, orders)
	if err != nil {
		return err
	}
	if _, err := f.f.WriteAt(data, int64((f.counter+1)%slots)*slotSize); err != nil {
		return err
	}
	if err := f.f.Sync(); err != nil {
		return err
	}
	f.counter++
	return nil
}
