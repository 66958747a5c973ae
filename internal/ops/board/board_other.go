//go:build !linux

package board

import (
	"context"
	"errors"
	"fmt"
)

var errSystem = errors.New("only a Linux computer can be a board; to write a device for another system in Go, see docs/how-to/write-a-device-in-go.md")

// Run returns an error.
func Run(context.Context, Config, func(fmt.Stringer) error) error { return errSystem }
