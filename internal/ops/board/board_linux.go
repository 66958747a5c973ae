package board

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/internal/permission"
	"github.com/ferrulehq/ferrule/thing/linux"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// instructions are for models.
const instructions = "This is a Linux computer. A GPIO line is reserved when it is first used, and an output keeps its level until it is set again."

// Run serves this computer until ctx ends; it then returns nil. It calls ready with a [Served]
// when callers can connect. With ListOnly it reserves nothing, calls ready with [Tools], and
// returns.
func Run(ctx context.Context, c Config, ready func(fmt.Stringer) error) error {
	board := open(c)
	defer board.Close()
	if c.ListOnly {
		return list(board, ready)
	}
	token, created, err := c.token()
	if err != nil {
		return err
	}
	config := mcpserver.Config{Title: title(), Instructions: instructions, Hosts: c.hostNames(), Log: c.Log}
	if token != "" {
		config.Tokens = []string{token}
	}
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	at := ln.Addr().(*net.TCPAddr)
	if err := c.checkAddr(at); err != nil {
		return errors.Join(err, ln.Close())
	}
	if err := ready(Served{Name: board.Name(), URL: "http://" + at.String() + "/mcp", Tools: len(board.Tools()), reach: c.reach(board.Name(), at, created), why: whyNothing()}); err != nil {
		return errors.Join(err, ln.Close())
	}
	device := mcpserver.New(board.Device, config)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { board.Run(ctx, device.Refresh) })
	if !at.IP.IsLoopback() {
		wg.Go(func() {
			if err := device.Announce(ctx, at.Port, 0); err != nil {
				c.Log.Error("mDNS announcement failed; name the address of this computer in the gateway", "err", err)
			}
		})
	}
	err = device.Serve(ctx, ln)
	cancel()
	wg.Wait()
	return err
}

func list(board *linux.Board, ready func(fmt.Stringer) error) error {
	tools := Tools{}
	for _, t := range board.Tools() {
		tools = append(tools, Tool{Name: t.Name, Text: t.Text, Reads: t.Reads, Polled: t.Poll > 0})
	}
	if len(tools) == 0 {
		return errors.New("there are no tools: " + whyNothing())
	}
	return ready(tools)
}

// whyNothing says why a board has no tools: the computer has no hardware, or it may not be used.
func whyNothing() string {
	for _, c := range permission.HardwareClasses {
		if files, _ := filepath.Glob(kernelfs.Path(c.Files)); len(files) > 0 { // the patterns are valid
			return "this computer has hardware, but nothing that you can use; to learn whether a permission is missing, run `ferrule doctor`"
		}
	}
	return "this computer has no GPIO, PWM, LED, backlight, camera or sensor, as usual in a virtual machine or a container; to try Ferrule without hardware, run `ferrule sim mcpu`"
}

// open looks for parts.
func open(c Config) *linux.Board {
	name := cmp.Or(c.Name, computerName(), "board")
	return linux.New(name, c.Version, linux.Config{Lines: c.Lines, Poll: c.Poll, Log: c.Log})
}

// title returns the computer's model, from the device tree or the firmware.
func title() string {
	for _, file := range []string{"sys/firmware/devicetree/base/model", "sys/class/dmi/id/product_name"} {
		text, err := os.ReadFile(kernelfs.Path(file))
		if name := strings.Trim(string(text), "\x00 \n"); err == nil && name != "" && len(name) < 100 {
			return name
		}
	}
	return ""
}
