package serial

import "errors"

var errUnplugged = errors.New("it was unplugged")
