package serial

import (
	"errors"

	"go.bug.st/serial"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

func openPort(path string, baud int, reset Reset) (transport.Conn, error) {
	mode := &serial.Mode{BaudRate: baud}
	if reset == ResetNone {
		mode.InitialStatusBits = &serial.ModemOutputBits{}
	}
	port, err := serial.Open(path, mode)
	var code *serial.PortError
	switch {
	case errors.As(err, &code) && code.Code() == serial.PortBusy:
		return nil, errors.New("in use by another program")
	case errors.As(err, &code) && code.Code() == serial.PortNotFound:
		return nil, errUnplugged
	case err != nil:
		return nil, err
	}
	return newPollingConn(port)
}
