package hardware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/ferrulehq/ferrule/thing"
)

// I2CConfig configures the tools of an I2C bus. A field that is not set has the default that its
// comment names.
type I2CConfig struct {
	// Name is the prefix of the bus's tools. Default: i2c and the bus's number.
	Name string
	// Text says what is on the bus, for example "Sensors on the roof".
	Text string
	// Addresses are the addresses that callers may use. Default: 0x08 to 0x77.
	Addresses []int
	// ReadOnly leaves out the tool that writes.
	ReadOnly bool
	// Safe says that nothing on the bus can do harm. Without it, writing endangers: it can
	// erase memories and change voltages.
	Safe bool
}

// The addresses of ordinary chips. Those beside them are reserved.
const (
	firstAddress = 0x08
	lastAddress  = 0x77
)

// Limits of one transfer.
const (
	maxWrite = 128
	maxRead  = 256
)

func (c *I2CConfig) check() error {
	if len(c.Addresses) == 0 {
		for a := firstAddress; a <= lastAddress; a++ {
			c.Addresses = append(c.Addresses, a)
		}
	}
	for _, a := range c.Addresses {
		if a < firstAddress || a > lastAddress {
			return fmt.Errorf("invalid I2C address %#02x: must be between %#02x and %#02x", a, firstAddress, lastAddress)
		}
	}
	return nil
}

// I2CChip is an address of an I2C bus where a chip answers.
type I2CChip struct {
	Address int    `json:"address"`
	Hex     string `json:"hex"`
	// Driver reports whether a driver of the kernel uses the chip. It was then not asked.
	Driver bool `json:"driver" jsonschema:"true if a driver of the kernel uses the chip"`
}

type i2cChips struct {
	Chips []I2CChip `json:"chips"`
}

type i2cTransfer struct {
	Address int   `json:"address"`
	Count   int   `json:"count,omitempty"`
	Bytes   []int `json:"bytes,omitempty"`
}

type i2cBytes struct {
	Bytes []int  `json:"bytes"`
	Hex   string `json:"hex"`
}

// I2C adds the tools of an I2C bus, /dev/i2c-N, to a device:
//
//	NAME_scan       lists the addresses where a chip answers
//	NAME_read       reads bytes from a chip
//	NAME_transfer   writes bytes to a chip, then reads bytes from it
//
// Chips that a driver of the kernel uses are refused.
func I2C(d *thing.Device, bus int, config I2CConfig) (*I2CBus, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	b, err := OpenI2C(bus)
	if err != nil {
		return nil, err
	}
	t := naming(config.Name, config.Text, fmt.Sprintf("i2c%d", bus), fmt.Sprintf("I2C bus %d", bus))
	thing.Tool(d, t.tool("scan"), "List the chips that answer on "+t.text, func(ctx context.Context, _ struct{}) (i2cChips, error) {
		chips, err := b.Scan(ctx, config.Addresses)
		return i2cChips{chips}, err
	}, thing.Reads())
	transfer := func(_ context.Context, in i2cTransfer) (i2cBytes, error) {
		write := make([]byte, len(in.Bytes))
		for i, v := range in.Bytes {
			write[i] = byte(v)
		}
		read, err := b.Transfer(in.Address, write, in.Count)
		return shownBytes(read), err
	}
	count := fmt.Sprintf(`"count":{"type":"integer","minimum":1,"maximum":%d,"default":1,"description":"how many bytes to read"}`, maxRead)
	thing.Tool(d, t.tool("read"), "Read bytes from a chip on "+t.text, func(ctx context.Context, in i2cTransfer) (i2cBytes, error) {
		in.Count = max(in.Count, 1)
		return transfer(ctx, in)
	}, thing.Reads(), thing.WithSchema(i2cSchema(config, count, `"address"`)))
	if config.ReadOnly {
		return b, nil
	}
	bytes := fmt.Sprintf(`"bytes":{"type":"array","items":{"type":"integer","minimum":0,"maximum":255},"minItems":1,"maxItems":%d,"description":"bytes to write, often a register first"},`+
		`"count":{"type":"integer","minimum":0,"maximum":%d,"default":0,"description":"how many bytes to read after writing"}`, maxWrite, maxRead)
	thing.Tool(d, t.tool("transfer"), "Write bytes to a chip on "+t.text+", then read bytes from it", transfer,
		append(changes(!config.Safe), thing.WithSchema(i2cSchema(config, bytes, `"address","bytes"`)))...)
	return b, nil
}

// i2cSchema returns the schema of a tool with an address and further properties.
func i2cSchema(config I2CConfig, more, required string) []byte {
	address := fmt.Sprintf(`"minimum":%d,"maximum":%d`, firstAddress, lastAddress)
	if len(config.Addresses) <= lastAddress-firstAddress {
		list, err := json.Marshal(config.Addresses)
		if err != nil { // cannot happen: it has only integers
			panic(err)
		}
		address = `"enum":` + string(list)
	}
	return fmt.Appendf(nil, `{"type":"object","properties":{"address":{"type":"integer",%s,"description":"7-bit address"},%s},"required":[%s],"additionalProperties":false}`, address, more, required)
}

func shownBytes(data []byte) i2cBytes {
	shown := i2cBytes{Bytes: make([]int, len(data)), Hex: fmt.Sprintf("% x", data)}
	for i, b := range data {
		shown.Bytes[i] = int(b)
	}
	return shown
}

// I2CBus is an I2C bus. Its methods may be called concurrently; one transfer runs at a time.
type I2CBus struct {
	number int
	mu     sync.Mutex
}

// errDriver is the error of a chip that a driver of the kernel uses.
var errDriver = errors.New("a driver of the kernel uses the chip")

// OpenI2C returns the bus /dev/i2c-N. The file is opened for each transfer.
func OpenI2C(bus int) (*I2CBus, error) {
	b := &I2CBus{number: bus}
	f, err := b.open()
	if err != nil {
		return nil, err
	}
	return b, f.Close()
}

// Transfer writes bytes to a chip and then reads count bytes from it, without letting go of the
// bus. Both may be empty, but not at once. It returns a [thing.RefusedError] if nothing was sent.
func (b *I2CBus) Transfer(address int, write []byte, count int) (read []byte, err error) {
	if address < firstAddress || address > lastAddress || len(write) > maxWrite || count < 0 || count > maxRead || len(write)+count == 0 {
		return nil, refused("invalid transfer: address %#02x, %d bytes to write, %d bytes to read", address, len(write), count)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f, err := b.open()
	if err != nil {
		return nil, refused("%v", err)
	}
	defer f.Close()
	if err := f.claim(address); err != nil {
		return nil, refused("chip %#02x on I2C bus %d: %v", address, b.number, err)
	}
	how, err := planTransfer(f.abilities, write, count)
	if err != nil {
		return nil, refused("I2C bus %d: %v", b.number, err)
	}
	if read, err = f.transfer(how, address, write, count); err != nil {
		return nil, fmt.Errorf("transfer with chip %#02x on I2C bus %d: %w", address, b.number, err)
	}
	return read, nil
}

// Scan returns the addresses where a chip answers.
func (b *I2CBus) Scan(ctx context.Context, addresses []int) ([]I2CChip, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, err := b.open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	chips := []I2CChip{}
	for _, a := range slices.Sorted(slices.Values(addresses)) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		answers, err := false, f.claim(a)
		driver := errors.Is(err, errDriver)
		if err == nil {
			answers, err = f.probe(planProbe(f.abilities, a), a)
		}
		if err != nil && !driver {
			return nil, fmt.Errorf("scanning address %#02x of I2C bus %d: %w", a, b.number, err)
		}
		if answers || driver {
			chips = append(chips, I2CChip{a, fmt.Sprintf("%#02x", a), driver})
		}
	}
	if _, err := os.Stat(f.Name()); err != nil { // else it looks like a bus without chips
		return nil, fmt.Errorf("I2C bus %d was unplugged during the scan: %w", b.number, err)
	}
	return chips, nil
}

// Abilities of a bus, as the kernel reports them.
const (
	canI2C         = 1 << 0
	canQuick       = 1 << 16
	canReadByte    = 1 << 17
	canWriteByte   = 1 << 18
	canReadByteAt  = 1 << 19
	canWriteByteAt = 1 << 20
	canReadWordAt  = 1 << 21
	canWriteWordAt = 1 << 22
	canReadBlock   = 1 << 26
	canWriteBlock  = 1 << 27
)

// method is how a transfer is done: in plain I2C, or in one of the transactions of SMBus, which
// is all that some buses can do.
type method int

// The methods. The numbers of SMBus transactions are those of the kernel.
const (
	quick    method = 0 // only the address
	oneByte  method = 1
	byteAt   method = 2 // a register, then one byte
	wordAt   method = 3 // a register, then two bytes
	blockAt  method = 8 // a register, then up to 32 bytes
	plainI2C method = -1
)

// maxBlock is the limit of a block in SMBus.
const maxBlock = 32

// planTransfer chooses the method of a transfer, or returns why the bus cannot do it.
func planTransfer(abilities uint, write []byte, count int) (method, error) {
	can := func(what uint) bool { return abilities&what == what }
	w := len(write)
	switch {
	case can(canI2C):
		return plainI2C, nil
	case w == 0 && count == 1 && can(canReadByte), w == 1 && count == 0 && can(canWriteByte):
		return oneByte, nil
	case w == 1 && count == 1 && can(canReadByteAt), w == 2 && count == 0 && can(canWriteByteAt):
		return byteAt, nil
	case w == 1 && count == 2 && can(canReadWordAt), w == 3 && count == 0 && can(canWriteWordAt):
		return wordAt, nil
	case w == 1 && count >= 1 && count <= maxBlock && can(canReadBlock),
		w >= 2 && w <= maxBlock+1 && count == 0 && can(canWriteBlock):
		return blockAt, nil
	}
	return 0, fmt.Errorf("it has only SMBus, and cannot write %d bytes and then read %d", w, count)
}

// planProbe chooses how to find out whether a chip answers: with an empty write, as i2cdetect
// does, except where memories are. Some of those lose data by it.
func planProbe(abilities uint, address int) method {
	memory := address >= 0x30 && address <= 0x37 || address >= 0x50 && address <= 0x5f
	if abilities&canQuick != 0 && !(memory && abilities&canReadByte != 0) {
		return quick
	}
	return oneByte
}
