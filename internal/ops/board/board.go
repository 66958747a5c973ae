// Package board serves this computer as a device: `ferrule board`.
//
//	thing/linux (what is found) ─▶ thing/mcpserver (MCP over HTTP, mDNS) ─▶ a gateway
//
// It listens on a loopback address by default. Beyond that, it needs a token, or the explicit
// decision that everyone may use it.
package board

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// DefaultListen is the address of a board.
const DefaultListen = "127.0.0.1:8642"

// Config configures a board.
type Config struct {
	// Name is the name of the device; the name of the computer if it is empty.
	Name    string
	Version string
	// Listen is the address of HTTP.
	Listen string
	// TokenFile contains the token that callers must know. It is created if it is missing.
	TokenFile string
	// Anyone lets everyone in who can reach the computer.
	Anyone bool
	// Hosts are more host names under which callers reach the computer, such as pi.fritz.box.
	Hosts []string
	// Lines and Poll are those of thing/linux.
	Lines []string
	Poll  time.Duration
	// ListOnly lists the tools instead of serving them.
	ListOnly bool
	Log      *slog.Logger
}

// Served is a board that callers can connect to.
type Served struct {
	Name  string `json:"name"`
	URL   string `json:"url"`
	Tools int    `json:"tools"`
	reach string
	why   string // there are no tools
}

// String says where the board is served and who can use it.
func (s Served) String() string {
	nothing := ""
	if s.Tools == 0 {
		nothing = "There are no tools yet: " + s.why + ". What is plugged in later appears.\n"
	}
	return fmt.Sprintf("Serving %s with %d tools at %s\n%s%s\n", s.Name, s.Tools, s.URL, nothing, s.reach)
}

// Tool is a tool of the board.
type Tool struct {
	Name   string `json:"name"`
	Text   string `json:"text"`
	Reads  bool   `json:"reads"`
	Polled bool   `json:"polled"`
}

// Tools are the tools of the board.
type Tools []Tool

// String returns a line for each tool.
func (t Tools) String() string {
	var out strings.Builder
	for _, tool := range t {
		fmt.Fprintf(&out, "%-34s %s\n", tool.Name, tool.Text)
	}
	return out.String()
}

// Check returns an error if the configuration is invalid.
func (c Config) Check() error {
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case err != nil:
		return fmt.Errorf("--listen must be HOST:PORT, got %q", c.Listen)
	case c.Poll != 0 && c.Poll < time.Second:
		return fmt.Errorf("--poll must be at least 1s, got %v", c.Poll)
	case slices.ContainsFunc(c.Lines, func(pattern string) bool { _, err := path.Match(pattern, ""); return err != nil }):
		return fmt.Errorf("--lines has an invalid pattern: %q", c.Lines)
	case slices.ContainsFunc(c.Hosts, func(name string) bool { return !hostName.MatchString(name) }):
		return fmt.Errorf("--host must be a host name without a port, such as pi.fritz.box, got %q", c.Hosts)
	case c.Anyone && c.TokenFile != "":
		return errors.New("--anyone and --token-file exclude each other")
	case !isLoopback(host) && !c.protected():
		return c.exposed(c.Listen)
	}
	return nil
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)

// computerName returns the name of this computer without its domain; empty if it has none.
func computerName() string {
	host, _ := os.Hostname()
	if host, _, _ = strings.Cut(host, "."); !hostName.MatchString(host) {
		return ""
	}
	return host
}

// hostNames returns the names that a request may have as its Host, in addition to addresses.
// The name of this computer is safe: its own resolver answers for it, so a web page cannot make
// it another site that moves here. Its domain may come from the network, and is left out.
func (c Config) hostNames() []string {
	names := slices.Clone(c.Hosts)
	if own := computerName(); own != "" {
		names = append(names, own, own+".local")
	}
	return names
}

// protected reports whether the board may listen beyond loopback.
func (c Config) protected() bool { return c.Anyone || c.TokenFile != "" }

// checkAddr checks the address that the board listens on: localhost may be another one.
func (c Config) checkAddr(at *net.TCPAddr) error {
	if at.IP.IsLoopback() || c.protected() {
		return nil
	}
	return c.exposed(fmt.Sprintf("%s, which is %s,", c.Listen, at))
}

func (Config) exposed(addr string) error {
	return fmt.Errorf("%s can be reached from other computers: add --token-file FILE, or --anyone if everyone there may switch the outputs of this one", addr)
}

// isLoopback reports whether a host can be reached from this computer only.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// minToken is the length of the shortest token: shorter ones can be guessed.
const minToken = 16

// token returns the token of the file, which is created if it is missing.
func (c Config) token() (token string, created bool, err error) {
	if c.TokenFile == "" {
		return "", false, nil
	}
	f, err := os.OpenFile(c.TokenFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case err == nil:
		token = rand.Text()
		_, err = f.WriteString(token + "\n")
		return token, true, errors.Join(err, f.Close())
	case !errors.Is(err, fs.ErrExist):
		return "", false, fmt.Errorf("creating the token file: %w", err)
	}
	info, err := os.Stat(c.TokenFile)
	if err != nil {
		return "", false, fmt.Errorf("reading the token: %w", err)
	}
	switch mode := info.Mode().Perm(); {
	case mode&0o007 != 0:
		return "", false, fmt.Errorf("every user of this computer may read or replace the token: run `chmod 600 %s`", c.TokenFile)
	case mode&0o020 != 0:
		return "", false, fmt.Errorf("every user of a group may replace the token: run `chmod g-w %s`", c.TokenFile)
	}
	text, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", false, fmt.Errorf("reading the token: %w", err)
	}
	if token = strings.TrimSpace(string(text)); len(token) < minToken || strings.ContainsAny(token, " \t\r\n") {
		return "", false, fmt.Errorf("%s must contain one token of at least %d characters; remove the file to make a new one", c.TokenFile, minToken)
	}
	return token, false, nil
}

// reach says who can use the board, and how to connect a gateway to it.
func (c Config) reach(name string, at *net.TCPAddr, created bool) string {
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = "ADDRESS-OF-THIS-COMPUTER"
	}
	url := fmt.Sprintf("http://%s", net.JoinHostPort(host, fmt.Sprint(at.Port)))
	switch {
	case c.Anyone:
		return "Everyone who can reach this computer can use it, without a token.\n" +
			"Connect a gateway: ferrule up --http auto, then: ferrule adopt " + name
	case c.TokenFile != "":
		made := ""
		if created {
			made = " A new one was made."
		}
		return fmt.Sprintf("Programs that know the token in %s can use it.%s It is sent without encryption.\n"+
			"Connect a gateway, with a copy of that file:\n\n  devices:\n    http:\n      - url: %s\n        name: %s\n        file: board.token", c.TokenFile, made, url, name)
	}
	return fmt.Sprintf("Every program on this computer can use it, also those of other users. Other computers cannot reach it.\n"+
		"Connect a gateway: ferrule up --http %s=%s", name, url)
}

// Help describes the command.
const Help = `Serve this Linux computer, for example a Raspberry Pi, as a device. Everything that
the kernel offers becomes tools: GPIO lines with a name that no driver uses, PWM chips, IIO
and hwmon sensors, thermal zones, LEDs, backlights and cameras. What is plugged in or
unplugged later appears and vanishes. Gateways record every sensor.

It listens on this computer only, where every program can use it. To listen beyond, name a
token file; gateways need a copy of it. With --anyone there is no token, and the device is
found by ` + "`ferrule up --http auto`" + `. Callers use an address or the name of this computer; --host
adds other names, such as the one that a router gives it.

Looking for hardware changes nothing. A GPIO line is reserved by the first call that uses
it. An output keeps its level until it is set again; what it does when this program ends
depends on the chip. A new GPIO chip adds tools, which the gateway uses after
` + "`ferrule accept`" + `.`
