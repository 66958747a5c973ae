//go:build linux

package linux

import (
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
)

// peripheralPins returns the lines of a GPIO chip whose pins the device tree gives to an enabled
// peripheral: an I2C bus, an SD card, Wi-Fi. The pin controllers of the Raspberry Pi do not
// protect them: a pin that is reserved and released as a GPIO line becomes an input, and its
// peripheral stops.
//
//	peripheral: pinctrl-0 = <phandle>  ─▶  group: brcm,pins = <2 3>, or pins = "gpio2", "gpio3"
func (b *Board) peripheralPins(chip string) map[int]bool {
	pins := make(map[int]bool)
	controller := ofNode(chip)
	if controller == "" { // a computer without a device tree
		return pins
	}
	groups := make(map[uint32]string) // of the chip's node, by phandle
	wanted := make(map[uint32]bool)
	tree := kernelfs.Path("sys/firmware/devicetree/base")
	filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		if strings.HasPrefix(path, controller+"/") {
			if handle := cells(path, "phandle"); len(handle) == 1 {
				groups[handle[0]] = path
			}
			return nil
		}
		status, err := kernelfs.Text(path, "status")
		if status = strings.Trim(status, "\x00"); err == nil && status != "okay" && status != "ok" {
			return filepath.SkipDir
		}
		if path != controller {
			for _, handle := range cells(path, "pinctrl-0") {
				wanted[handle] = true
			}
		}
		return nil
	})
	for handle := range wanted {
		group, ok := groups[handle]
		if !ok {
			continue
		}
		addGroup(pins, group)
		children, _ := os.ReadDir(group) // newer trees have the pins one level deeper
		for _, child := range children {
			if child.IsDir() {
				addGroup(pins, filepath.Join(group, child.Name()))
			}
		}
	}
	return pins
}

// addGroup adds the pins of a group.
func addGroup(pins map[int]bool, group string) {
	for _, pin := range cells(group, "brcm,pins") {
		pins[int(pin)] = true
	}
	names, _ := kernelfs.Text(group, "pins") // most have none
	for name := range strings.SplitSeq(names, "\x00") {
		if number, ok := strings.CutPrefix(name, "gpio"); ok {
			if n, err := strconv.Atoi(number); err == nil {
				pins[n] = true
			}
		}
	}
}

// ofNode returns the node of a GPIO chip in the device tree, or "".
func ofNode(chip string) string {
	device, err := filepath.EvalSymlinks(chip)
	if err != nil {
		return ""
	}
	for _, dir := range []string{device, filepath.Dir(device)} {
		if node, err := filepath.EvalSymlinks(filepath.Join(dir, "of_node")); err == nil {
			return node
		}
	}
	return ""
}

// maxProperty is the limit of a property in bytes.
const maxProperty = 4096

// cells returns a property of a node that is a list of numbers.
func cells(node, property string) (all []uint32) {
	data, err := os.ReadFile(filepath.Join(node, property))
	if err != nil || len(data) > maxProperty {
		return nil
	}
	for ; len(data) >= 4; data = data[4:] {
		all = append(all, binary.BigEndian.Uint32(data))
	}
	return all
}
