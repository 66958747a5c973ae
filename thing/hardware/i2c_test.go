package hardware

import (
	"testing"
)

// smbusOnly are the abilities of a bus without plain I2C, such as i2c-stub in the kernel.
const smbusOnly = canQuick | canReadByte | canWriteByte | canReadByteAt | canWriteByteAt | canReadWordAt | canWriteWordAt | canReadBlock | canWriteBlock

func TestPlanTransfer(t *testing.T) {
	for _, c := range []struct {
		name         string
		abilities    uint
		write, count int
		want         method
		impossible   bool
	}{
		{"plain", canI2C | smbusOnly, 1, 2, plainI2C, false},
		{"long", canI2C, 128, 256, plainI2C, false},
		{"receive a byte", smbusOnly, 0, 1, oneByte, false},
		{"send a byte", smbusOnly, 1, 0, oneByte, false},
		{"read a register", smbusOnly, 1, 1, byteAt, false},
		{"write a register", smbusOnly, 2, 0, byteAt, false},
		{"read a word", smbusOnly, 1, 2, wordAt, false},
		{"write a word", smbusOnly, 3, 0, wordAt, false},
		{"read a block", smbusOnly, 1, 32, blockAt, false},
		{"write a block", smbusOnly, 33, 0, blockAt, false},
		{"word as a block", smbusOnly &^ canReadWordAt, 1, 2, blockAt, false},
		{"read too much", smbusOnly, 1, 33, 0, true},
		{"write too much", smbusOnly, 34, 0, 0, true},
		{"read two without a register", smbusOnly, 0, 2, 0, true},
		{"write and read", smbusOnly, 2, 1, 0, true},
		{"no blocks", smbusOnly &^ (canReadBlock | canWriteBlock), 1, 3, 0, true},
	} {
		got, err := planTransfer(c.abilities, make([]byte, c.write), c.count)
		if (err != nil) != c.impossible || got != c.want {
			t.Errorf("%s: got %v, %v", c.name, got, err)
		}
	}
}

// TestPlanProbe checks that memories are never probed by a write where the bus can read.
func TestPlanProbe(t *testing.T) {
	for address := firstAddress; address <= lastAddress; address++ {
		memory := address>>3 == 0x30>>3 || address>>4 == 0x50>>4
		if got := planProbe(smbusOnly, address); (got == oneByte) != memory {
			t.Errorf("%#x: got %v", address, got)
		}
		if got := planProbe(canI2C, address); got != oneByte {
			t.Errorf("%#x without quick: got %v", address, got)
		}
	}
}

func TestI2CConfig(t *testing.T) {
	config := I2CConfig{}
	if err := config.check(); err != nil || len(config.Addresses) != 112 {
		t.Errorf("default: %d addresses, %v", len(config.Addresses), err)
	}
	for _, bad := range []int{-1, 0, 7, 0x78, 0x80} {
		config := I2CConfig{Addresses: []int{0x48, bad}}
		if err := config.check(); err == nil {
			t.Errorf("address %#x was accepted", bad)
		}
	}
}

func TestTransferLimits(t *testing.T) {
	bus := &I2CBus{number: 99}
	for name, c := range map[string]struct{ address, write, count int }{
		"reserved address": {0x03, 1, 0},
		"nothing to do":    {0x48, 0, 0},
		"too long":         {0x48, 129, 0},
		"too much":         {0x48, 0, 257},
		"negative":         {0x48, 0, -1},
		"missing bus":      {0x48, 1, 0},
	} {
		if _, err := bus.Transfer(c.address, make([]byte, c.write), c.count); !isRefused(err) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
}
