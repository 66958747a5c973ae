package permission

// Hardware is a class of parts of a Linux computer that `ferrule board` offers, and that not
// every user may use.
type Hardware struct {
	Name      string
	One, Many string // for people
	Files     string // a pattern, relative to the root
}

// HardwareClasses are all of them. Sensors are missing, because everyone may read them.
var HardwareClasses = []Hardware{
	{"gpio", "GPIO chip", "GPIO chips", "dev/gpiochip*"},
	{"camera", "video device", "video devices", "dev/video*"},
	{"pwm", "PWM chip", "PWM chips", "sys/class/pwm/pwmchip*/export"},
	{"led", "LED", "LEDs", "sys/class/leds/*/brightness"},
	{"backlight", "backlight", "backlights", "sys/class/backlight/*/brightness"},
}
