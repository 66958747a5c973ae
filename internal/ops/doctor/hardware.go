package doctor

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/ferrulehq/ferrule/internal/permission"
)

// hardware checks what `ferrule board` may use. It opens nothing. What may not be used is a
// note, because most gateways do not need it.
func (d *Doctor) hardware(ctx context.Context) (all []Finding) {
	if d.system != "linux" {
		return nil
	}
	for _, c := range permission.HardwareClasses {
		files, _ := filepath.Glob(filepath.Join(d.root, c.Files)) // the patterns are valid
		usable := 0
		denials := make(map[string][]string) // files by what to do
		for _, file := range files {
			if ctx.Err() != nil {
				return all
			}
			switch why, group := d.access(file); why {
			case "":
				usable++
			case permission.NotMember:
				next := fmt.Sprintf("to use it with `ferrule board`, run `sudo usermod -aG %s $USER`, then log out and in", group)
				denials[next] = append(denials[next], file)
			case permission.NeedsLogin:
				next := fmt.Sprintf("you were added to group %s after you logged in: log out and in", group)
				denials[next] = append(denials[next], file)
			default:
				const next = "to use it with `ferrule board`, install the udev rule in docs/how-to/raspberry-pi.md"
				denials[next] = append(denials[next], file)
			}
		}
		if usable > 0 {
			all = append(all, Finding{Check: c.Name, State: Fine, Found: fmt.Sprintf("%s can be used by `ferrule board`", count(c, usable))})
		}
		for _, next := range slices.Sorted(maps.Keys(denials)) {
			denied := denials[next]
			all = append(all, Finding{Check: c.Name, About: denied[0], State: Note, Found: fmt.Sprintf("%s: permission denied, %s", count(c, len(denied)), denied[0]), Next: next})
		}
	}
	if len(all) == 0 {
		all = append(all, Finding{Check: "hardware", State: Fine, Found: "this computer has no GPIO, PWM, LED, backlight or camera for `ferrule board`"})
	}
	return all
}

func count(c permission.Hardware, n int) string {
	if n == 1 {
		return "1 " + c.One
	}
	return fmt.Sprintf("%d %s", n, c.Many)
}
