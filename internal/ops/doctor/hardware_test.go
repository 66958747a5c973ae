package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ferrulehq/ferrule/internal/permission"
)

// TestHardware: what `ferrule board` may not use is explained by its cause, once for each.
func TestHardware(t *testing.T) {
	root := t.TempDir()
	why := make(map[string]permission.Denied)
	add := func(file string, denied permission.Denied) {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		why[path] = denied
	}
	d := &Doctor{root: root, system: "linux", access: func(file string) (permission.Denied, string) {
		return why[file], map[permission.Denied]string{permission.NotMember: "gpio", permission.NeedsLogin: "video"}[why[file]]
	}}
	wantLines(t, "nothing", d.hardware(t.Context()), "fine hardware: this computer has no GPIO, PWM, LED, backlight or camera for `ferrule board`")
	add("dev/gpiochip0", permission.NotMember)
	add("dev/gpiochip1", permission.NotMember)
	add("dev/gpiochip2", "")
	add("dev/video0", permission.NeedsLogin)
	add("sys/class/leds/ACT/brightness", permission.NoGroup)
	add("sys/class/pwm/pwmchip0/export", "")
	add("dev/i2c-1", "") // a board has no tools for buses
	add("dev/spidev0.0", permission.NotMember)
	wantLines(t, "some", d.hardware(t.Context()),
		"fine gpio: 1 GPIO chip can be used by `ferrule board`",
		"note gpio: 2 GPIO chips: permission denied, "+root+"/dev/gpiochip0 → to use it with `ferrule board`, run `sudo usermod -aG gpio $USER`, then log out and in",
		"note camera: 1 video device: permission denied, "+root+"/dev/video0 → you were added to group video after you logged in: log out and in",
		"fine pwm: 1 PWM chip can be used by `ferrule board`",
		"note led: 1 LED: permission denied, "+root+"/sys/class/leds/ACT/brightness → to use it with `ferrule board`, install the udev rule in docs/how-to/raspberry-pi.md",
	)
	d.system = "darwin"
	wantLines(t, "another system", d.hardware(t.Context()))
}
