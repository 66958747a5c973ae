package sim

import (
	"context"
	"encoding/hex"
	"errors"

	"github.com/ferrulehq/ferrule/thing"
)

// sensor is the address of the only device on the I2C bus of firmware 1.0. It has readable
// and writable registers.
const sensor = 0x48

type i2cFound struct {
	Devices []int `json:"devices"`
	Count   int   `json:"count"`
}

type i2cWrite struct {
	Address int   `json:"address"`
	Reg     uint8 `json:"reg"`
	Value   uint8 `json:"value"`
}

type i2cRead struct {
	Address int   `json:"address"`
	Reg     uint8 `json:"reg"`
	Length  int   `json:"length" jsonschema:"1 to 32"`
}

type i2cData struct {
	Address int    `json:"address"`
	Reg     uint8  `json:"reg"`
	Data    []int  `json:"data"`
	Hex     string `json:"hex"`
}

var errNoAck = errors.New("I2C error 2")

func (b *Board) addI2C() {
	var registers [256]byte // needs no lock: one call at a time
	thing.Tool(b.Device, "i2c_scan", "Find I2C devices", func(context.Context, struct{}) (i2cFound, error) {
		return i2cFound{[]int{sensor}, 1}, nil
	})
	thing.Tool(b.Device, "i2c_write_reg", "Write a register of an I2C device", func(_ context.Context, in i2cWrite) (i2cWrite, error) {
		if in.Address != sensor {
			return i2cWrite{}, errNoAck
		}
		registers[in.Reg] = in.Value
		return in, nil
	})
	thing.Tool(b.Device, "i2c_read_reg", "Read registers of an I2C device", func(_ context.Context, in i2cRead) (i2cData, error) {
		if in.Length < 1 || in.Length > 32 {
			return i2cData{}, &thing.RefusedError{Reason: "length must be within 1 and 32"}
		}
		if in.Address != sensor {
			return i2cData{}, errNoAck
		}
		out := i2cData{Address: in.Address, Reg: in.Reg}
		raw := make([]byte, in.Length)
		for i := range raw {
			raw[i] = registers[in.Reg+uint8(i)]
			out.Data = append(out.Data, int(raw[i]))
		}
		out.Hex = hex.EncodeToString(raw)
		return out, nil
	})
}
