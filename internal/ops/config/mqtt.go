package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
)

// Broker is an MQTT broker with devices that describe themselves there.
type Broker struct {
	// URL is mqtt://HOST[:PORT], or mqtts:// for TLS.
	URL string `yaml:"url"`
	// Name is part of the addresses of its devices. The default is made from the URL.
	Name string `yaml:"name"`
	User string `yaml:"user"`
	// Password is the password; PasswordFile names a file with it.
	Password     ferrule.Secret `yaml:"password"`
	PasswordFile string         `yaml:"password_file"`
	CA           string         `yaml:"ca"`
	Cert         string         `yaml:"cert"`
	Key          string         `yaml:"key"`
	// Adopt says which of its devices are adopted when they are found: hass.AdoptNone,
	// AdoptSensors or AdoptAll.
	Adopt string `yaml:"adopt"`
	// Prefix is that of discovery topics.
	Prefix string `yaml:"prefix"`
	// Settings lets agents change settings of devices, not only what they are for.
	Settings bool `yaml:"settings"`
	// Disabled includes what publishers mark as disabled.
	Disabled bool `yaml:"disabled"`
	// Offer is the name under which this gateway offers itself to agents on the broker,
	// such as ferrule/home; empty if it does not.
	Offer string `yaml:"offer"`
	// Publish shows the devices of this gateway in the Home Assistant that uses the broker.
	Publish bool `yaml:"publish"`
}

// Brokers returns the brokers with defaults filled in, and with the port in the URL.
func (c Config) Brokers() []Broker {
	all := slices.Clone(c.Devices.MQTT)
	for i := range all {
		all[i] = all[i].withDefaults()
	}
	return all
}

func (b Broker) withDefaults() Broker {
	b.Adopt, b.Prefix = cmp.Or(b.Adopt, hass.AdoptSensors), cmp.Or(b.Prefix, hass.DefaultPrefix)
	if u, err := url.Parse(b.URL); err == nil {
		port := cmp.Or(u.Port(), brokerPorts[u.Scheme])
		b.URL = u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port)
		b.Name = cmp.Or(b.Name, ferrule.Slug(u.Hostname()+"-"+port))
	}
	return b
}

// brokerPorts are the default ports by the scheme of a URL.
var brokerPorts = map[string]string{"mqtt": "1883", "mqtts": "8883"}

// Local reports whether the broker is on this machine, so that others have another one at
// this address.
func (b Broker) Local() bool {
	u, err := url.Parse(b.URL)
	return err == nil && isLoopback(u.Hostname())
}

// Client returns the config of the connection.
func (b Broker) Client() mqttclient.Config {
	out := mqttclient.DefaultConfig()
	out.URL, out.User, out.Password, out.PasswordFile = b.URL, b.User, b.Password, b.PasswordFile
	out.CA, out.Cert, out.Key = b.CA, b.Cert, b.Key
	return out
}

// checkBrokers checks devices.mqtt.
func (c Config) checkBrokers() error {
	names := make(map[string]bool)
	for i, b := range c.Devices.MQTT {
		if err := b.check(); err != nil {
			return fmt.Errorf("devices.mqtt[%d].%w", i, err)
		}
		name := b.withDefaults().Name
		if names[name] {
			return fmt.Errorf("devices.mqtt[%d].name: %q is the name of another broker", i, name)
		}
		names[name] = true
	}
	return nil
}

// check returns the first problem of a broker, starting with the key.
func (b Broker) check() error {
	if err := b.Client().Check(); err != nil {
		return err
	}
	if b.Name != "" {
		if err := ferrule.CheckID(b.Name); err != nil {
			return fmt.Errorf("name: %w", err)
		}
	}
	if !slices.Contains([]string{"", hass.AdoptNone, hass.AdoptSensors, hass.AdoptAll}, b.Adopt) {
		return fmt.Errorf("adopt: must be none, sensors or all, got %q", b.Adopt)
	}
	for key, topic := range map[string]string{"prefix": b.Prefix, "offer": b.Offer} {
		if err := checkTopic(topic); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	if b.Offer != "" && (!strings.Contains(b.Offer, "/") || strings.Contains(b.Offer, "//")) {
		return fmt.Errorf("offer: must have at least two levels, such as ferrule/home, got %q", b.Offer)
	}
	return nil
}

// checkTopic returns an error if a text cannot begin a topic. It may be empty.
func checkTopic(topic string) error {
	const limit = 128
	switch {
	case len(topic) > limit:
		return fmt.Errorf("must have at most %d characters", limit)
	case ferrule.Clean(topic, limit) != topic || strings.ContainsAny(topic, "+#\t\n"):
		return errors.New("must be a topic without + and #")
	case topic != strings.Trim(topic, "/") || strings.HasPrefix(topic, "$"):
		return errors.New("must not begin with $ or /, and not end with /")
	}
	return nil
}
