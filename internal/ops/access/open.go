package access

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Open returns the command `ferrule open`. If print is set when it runs, it only prints the
// link.
func Open(print *bool) Command {
	c := Login
	c.Use, c.Short, c.Example = "open", "Open the console in your browser, logged in", "  ferrule open\n  ferrule open --print"
	c.Long = `Open the console in the browser of this machine. It asks you to confirm that you log in, as
an owner: everybody is who can run this command. If there is no browser, the command prints
a link that works once, within five minutes.

The link is an argument of the program that opens the browser. Other users of this machine
could see it in the list of processes and be faster. If you do not trust them, run
` + "`ferrule login`" + ` instead, which prints the link for you only.`
	c.Show = shown(func(l ferrule.LoginLink) Shown {
		text := fmt.Sprintf("%s\n\nOpen this link in a browser before %s, to log in as %s (%s). It works once.\n", l.URL, ferrule.FormatTime(l.Expires), l.Name, l.Role)
		if *print {
			return Shown{Text: text}
		}
		if err := openBrowser(l.URL); err != nil {
			return Shown{Text: "No browser was opened: " + err.Error() + ".\n\n" + text}
		}
		return Shown{Text: "The console opens in your browser. If it does not, run `ferrule open --print`.\n"}
	})
	return c
}

// browserTime is how long the program that opens a browser is waited for. Some end with the
// browser only.
const browserTime = 3 * time.Second

// openBrowser opens a URL in the browser of the person.
func openBrowser(url string) error {
	cmd := exec.Command("xdg-open", url)
	switch {
	case runtime.GOOS == "darwin":
		cmd = exec.Command("open", url)
	case runtime.GOOS == "windows":
		cmd = exec.Command("rundll32", "url.dll,FileProtocolHandler", url)
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return errors.New("there is no display")
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the browser: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%s failed: %w", cmd.Args[0], err)
		}
	case <-time.After(browserTime):
	}
	return nil
}
