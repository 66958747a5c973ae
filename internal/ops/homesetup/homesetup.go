// Package homesetup guides through the access token of a Home Assistant, and checks it.
//
//	Run: probe -> ask for the token -> Examine -> save the token -> Report
package homesetup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// DefaultURL is where most Home Assistants are.
const DefaultURL = "http://homeassistant.local:8123"

// Help is the help text of `ferrule setup homeassistant`.
const Help = `Check the access token of a Home Assistant and save it, so that the gateway can use the
devices there. The command says where to make the token, and asks for it. It may also come
by standard input. The default of URL is ` + DefaultURL + `.

The token is saved only if Home Assistant accepts it, in a file that only you can read.
A gateway that waits for it uses it within a second. See docs/how-to/home-assistant.md.`

// readTime limits how long a Home Assistant may take to be read.
const readTime = 30 * time.Second

// Parts is what Run needs.
type Parts struct {
	// URL and Name are those of the Home Assistant, CA and File as in config.Home; empty for
	// defaults.
	Home config.Home
	// Ask asks for the token, after it printed a text. Its answer may be empty.
	Ask func(ctx context.Context, text string) string
}

// Report is what was found in a Home Assistant.
type Report struct {
	URL     string `json:"url"`
	Name    string `json:"name"`
	Version string `json:"version"`
	// User is whose token it is. Admin reports that it may do everything.
	User  string `json:"user"`
	Admin bool   `json:"admin"`
	// Devices and Entities count what agents may use, and Hidden the entities that they may not.
	Devices  int    `json:"devices"`
	Entities int    `json:"entities"`
	Hidden   int    `json:"hidden"`
	Note     string `json:"note,omitempty"`
	File     string `json:"file,omitempty"` // with the token
	custom   bool   // the file is not where the gateway looks by default
	ca       string
}

// Run asks for a token, checks it and saves it.
func Run(ctx context.Context, p Parts) (Report, error) {
	p.Home.URL = cmp.Or(p.Home.URL, DefaultURL)
	cfg := config.Default()
	cfg.Devices.HomeAssistant = []config.Home{p.Home}
	home := cfg.Homes()[0]
	if err := check(cfg); err != nil {
		return Report{}, err
	}
	version, err := api.Probe(ctx, home.Client())
	if err != nil {
		return Report{}, ferrule.Errorf(ferrule.Offline, "no token is asked for: %w", err)
	}
	token := strings.TrimSpace(p.Ask(ctx, question(home.URL, version)))
	if token == "" {
		return Report{}, ferrule.Errorf(ferrule.Cancelled, "nothing was saved: no token was given")
	}
	file := home.File
	home.Token, home.File = ferrule.Secret(token), ""
	out, err := Examine(ctx, home)
	if err != nil {
		return out, err
	}
	out.File, out.custom = file, file != config.HomeTokenFile(home.URL)
	if err := save(file, token); err != nil {
		return out, ferrule.Errorf(ferrule.Internal, "the token is right, but it was not saved: %w", err)
	}
	return out, nil
}

// check returns what is wrong with the command line.
func check(cfg config.Config) error {
	err := cfg.Check()
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(err.Error(), "devices.homeassistant[0].")
	return ferrule.Errorf(ferrule.Invalid, "%s", strings.TrimPrefix(text, "devices: "))
}

// question says where to make a token.
func question(url, version string) string {
	return fmt.Sprintf(`Home Assistant %s answers at %s.

1. Best make a user for Ferrule there, who is not an administrator: Settings, People, Users.
2. Log in as this user and open %s/profile/security
3. Below "Long-lived access tokens", choose "Create token" and name it Ferrule.
4. Copy the token, and paste it here. It is not shown.

Token: `, version, url, url)
}

// Examine connects to a Home Assistant, and counts what it has.
func Examine(ctx context.Context, home config.Home) (Report, error) {
	out := Report{URL: home.URL, Name: home.Name, ca: home.CA}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	client := api.New(home.Client(), log)
	hub := homeassistant.NewHub(homeassistant.HubConfig{Home: home.Name, Local: home.Local(), Adopt: home.Adopt, All: home.All, Settings: home.Settings}, client, log)
	changed := client.Changed() // before it runs: the first change may be the only one
	running, stop := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop()
	tasks.Go(func() { client.Run(running) })
	tasks.Go(func() { hub.Watch(running, func(string, []transport.Sighting) {}) })
	select {
	case <-changed:
	case <-ctx.Done():
	}
	status := client.Status()
	switch {
	case status.Refused:
		return out, ferrule.Errorf(ferrule.Denied, "nothing was saved: Home Assistant refused this token").
			WithHint("copy all of it, or make another one at %s/profile/security; then run this command again", home.URL)
	case !status.Connected:
		return out, ferrule.Errorf(ferrule.Offline, "%s", cmp.Or(status.Reason, "no answer in time"))
	}
	out.Version = status.Version
	conn, err := client.Connect(ctx)
	if err == nil {
		err = out.whose(ctx, conn)
	}
	if err != nil {
		return out, ferrule.Errorf(ferrule.Offline, "Home Assistant accepts the token, but does not answer: %w", err)
	}
	return out, out.count(ctx, hub)
}

// whose finds out whose token it is.
func (r *Report) whose(ctx context.Context, conn *api.Conn) error {
	var user struct {
		Name  string `json:"name"`
		Admin bool   `json:"is_admin"`
	}
	err := conn.Request(ctx, "auth/current_user", nil, &user)
	r.User, r.Admin = ferrule.Clean(user.Name, ferrule.MaxWord), user.Admin
	return err
}

// count waits until a hub has read everything.
func (r *Report) count(ctx context.Context, hub *homeassistant.Hub) error {
	const pause = 20 * time.Millisecond
	for {
		found := hub.Status()
		r.Devices, r.Entities, r.Hidden, r.Note = found.Devices, found.Entities, found.Hidden, found.Note
		if found.Complete || found.Note != "" {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ferrule.Errorf(ferrule.Offline, "Home Assistant accepts the token, but was not read within %v; it may be starting", readTime)
		}
	}
}

// save writes a token to a file that only this user can read.
func save(path, token string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // with 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // unless it was renamed
	_, err = io.WriteString(file, token+"\n")
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// String returns the report for people.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Home Assistant %s accepts the token of %s.\n", r.Version, cmp.Or(r.User, "a user without a name"))
	fmt.Fprintf(&b, "Ferrule can offer %s with %s to agents.", count(r.Devices, "device", "devices"), count(r.Entities, "entity", "entities"))
	if r.Hidden > 0 {
		fmt.Fprintf(&b, " It leaves out %s, for example because you do not expose them to Assist.", count(r.Hidden, "entity", "entities"))
	}
	b.WriteString("\n")
	if r.Note != "" {
		fmt.Fprintf(&b, "It %s.\n", r.Note)
	}
	if r.Admin {
		fmt.Fprintf(&b, "Warning: %s is an administrator, so this token may do everything there. The token of another user limits what can go wrong.\n", r.User)
	}
	if r.File == "" {
		return b.String()
	}
	fmt.Fprintf(&b, "The token is saved in %s.\n\nTo use it, add this to %s:\n\n%s", r.File, cmp.Or(config.DefaultPath(), "ferrule.yaml"), r.entry())
	if !r.custom && r.ca == "" {
		fmt.Fprintf(&b, "\nOr run: ferrule up --homeassistant %s=%s\n", r.Name, r.URL)
	}
	b.WriteString("\nThen `ferrule devices` lists the devices. Sensors can be used at once. Everything that can be changed\nwaits until you adopt it: `ferrule adopt DEVICE...`, or adopt: all in the lines above.\n")
	return b.String()
}

// entry returns the lines of the configuration file.
func (r Report) entry() string {
	text := fmt.Sprintf("devices:\n  homeassistant:\n    - url: %s\n      name: %s\n", r.URL, r.Name)
	if r.custom {
		text += fmt.Sprintf("      file: %s\n", r.File)
	}
	if r.ca != "" {
		text += fmt.Sprintf("      ca: %s\n", r.ca)
	}
	return text + "      adopt: sensors # all: also lamps, locks and everything else\n"
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
