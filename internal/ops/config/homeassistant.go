package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Home is a Home Assistant whose devices are used.
type Home struct {
	// URL is http://HOST[:PORT], or https://.
	URL string `yaml:"url"`
	// Name is the ID of the home itself, and part of the addresses of its devices.
	Name string `yaml:"name"`
	// Token is an access token; File names a file with it. The default is HomeTokenFile.
	Token ferrule.Secret `yaml:"token"`
	File  string         `yaml:"file"`
	// CA is a file with the CA of the certificate; empty for those of the system.
	CA string `yaml:"ca"`
	// Adopt says which of its devices are adopted when they are found: none, sensors or all.
	Adopt string `yaml:"adopt"`
	// All includes entities that are not exposed to Assist, and Settings those that are
	// settings of devices.
	All      bool `yaml:"all"`
	Settings bool `yaml:"settings"`
}

// defaultHome is the name of a Home Assistant without one.
const defaultHome = "home"

// Homes returns the Home Assistants with defaults filled in.
func (c Config) Homes() []Home {
	all := slices.Clone(c.Devices.HomeAssistant)
	for i := range all {
		all[i] = all[i].withDefaults()
	}
	return all
}

func (h Home) withDefaults() Home {
	h.Name, h.Adopt = cmp.Or(h.Name, defaultHome), cmp.Or(h.Adopt, hass.AdoptSensors)
	if u, err := url.Parse(h.URL); err == nil {
		h.URL = strings.TrimRight(strings.ToLower(u.Scheme)+"://"+strings.ToLower(u.Host)+u.Path, "/")
	}
	if h.Token == "" {
		h.File = cmp.Or(h.File, HomeTokenFile(h.URL))
	}
	return h
}

// HomeTokenFile returns the file in which `ferrule setup homeassistant` saves the token for a
// Home Assistant. Its name has the address, so that the token goes nowhere else.
func HomeTokenFile(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(DefaultPath()), "homeassistant-"+ferrule.Slug(u.Host+u.Path)+".token")
}

// Local reports whether the Home Assistant is on this machine.
func (h Home) Local() bool {
	u, err := url.Parse(h.URL)
	return err == nil && isLoopback(u.Hostname())
}

// Client returns the config of the connection.
func (h Home) Client() api.Config {
	return api.Config{URL: h.URL, Token: h.ReadToken, CA: h.CA}
}

// maxTokenFile limits the bytes of a token file.
const maxTokenFile = 16 << 10

// ReadToken returns the access token. It reads the file each time: the owner may replace it.
func (h Home) ReadToken() (string, error) {
	if h.Token != "" {
		return h.Token.Reveal(), nil
	}
	file, err := os.Open(h.File)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("there is no token in %s; run `ferrule setup homeassistant %s`", h.File, h.URL)
	}
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxTokenFile+1))
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	text = bytes.TrimSpace(text)
	if len(text) == 0 || len(text) > maxTokenFile || bytes.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s must contain a token and nothing else", h.File)
	}
	return string(text), nil
}

// checkHomes checks devices.homeassistant.
func (c Config) checkHomes() error {
	names := make(map[string]string)
	for _, b := range c.Brokers() {
		names[b.Name] = "a broker"
	}
	for i, h := range c.Devices.HomeAssistant {
		if err := h.check(); err != nil {
			return fmt.Errorf("devices.homeassistant[%d].%w", i, err)
		}
		name := h.withDefaults().Name
		if other := names[name]; other != "" {
			return fmt.Errorf("devices.homeassistant[%d].name: %q is the name of %s: give one of them another name", i, name, other)
		}
		names[name] = "another Home Assistant"
	}
	return nil
}

// check returns the first problem of a Home Assistant, starting with the key.
func (h Home) check() error {
	u, err := url.Parse(h.URL)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("url: must be http://HOST[:PORT] or https://HOST[:PORT], got %q", ferrule.MaskURL(h.URL))
	case u.User != nil:
		return errors.New("url: must not contain a user or a password: set file to the name of a file with an access token")
	case h.Token != "" && h.File != "":
		return errors.New("token: must not be set together with file")
	case h.CA != "" && u.Scheme != "https":
		return errors.New("url: must start with https:// if ca is set")
	case !slices.Contains([]string{"", hass.AdoptNone, hass.AdoptSensors, hass.AdoptAll}, h.Adopt):
		return fmt.Errorf("adopt: must be none, sensors or all, got %q", h.Adopt)
	}
	return nil
}

// addHome adds a Home Assistant, unless the file has it and says more about it.
func (d *Devices) addHome(h Home) {
	want := h.withDefaults()
	if !slices.ContainsFunc(d.HomeAssistant, func(other Home) bool {
		return other.withDefaults().URL == want.URL && (h.Name == "" || h.Name == other.withDefaults().Name)
	}) {
		d.HomeAssistant = append(slices.Clip(d.HomeAssistant), h)
	}
}
