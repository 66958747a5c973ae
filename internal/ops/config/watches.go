package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/approval"
)

// Watches says where watches can notify. Agents choose among these; they cannot name others.
type Watches struct {
	Webhook WatchWebhook `yaml:"webhook"`
	MQTT    WatchMQTT    `yaml:"mqtt"`
}

// WatchWebhook is a URL that gets the notices of watches, signed like those of approvals.
type WatchWebhook struct {
	URL        ferrule.Secret `yaml:"url"`
	Secret     ferrule.Secret `yaml:"secret"`
	SecretFile string         `yaml:"secret_file"`
}

// WatchMQTT is where notices are published: one topic below Topic for each watch.
type WatchMQTT struct {
	// Broker is the name of one of devices.mqtt.
	Broker string `yaml:"broker"`
	Topic  string `yaml:"topic"`
}

// WatchesConfig returns where watches can notify, with the secret of the webhook read from its
// file where necessary.
func (c Config) WatchesConfig() (Watches, error) {
	out := c.Watches
	secret, err := readSecret(out.Webhook.Secret, out.Webhook.SecretFile)
	if err != nil {
		return out, fmt.Errorf("watches.webhook.secret_file: %w", err)
	}
	if out.Webhook.Secret = secret; out.Webhook.URL != "" {
		if err := approval.CheckWebhook(approval.Webhook{URL: out.Webhook.URL, Secret: secret}); err != nil {
			return out, fmt.Errorf("watches.%w", err)
		}
	}
	return out, nil
}

// checkWatches checks where watches notify, except for a secret in a file.
func (c Config) checkWatches() error {
	w := c.Watches
	switch hook := w.Webhook; {
	case hook.URL == "" && hook != (WatchWebhook{}):
		return errors.New("watches.webhook: secret needs a url")
	case hook.URL != "" && hook.SecretFile == "":
		if err := approval.CheckWebhook(approval.Webhook{URL: hook.URL, Secret: hook.Secret}); err != nil {
			return fmt.Errorf("watches.%w", err)
		}
	}
	switch m := w.MQTT; {
	case m.Broker == "" && m.Topic != "":
		return errors.New("watches.mqtt.topic: needs broker")
	case m.Broker == "":
		return nil
	case !slices.ContainsFunc(c.Devices.MQTT, func(b Broker) bool { return b.Name == m.Broker }):
		return fmt.Errorf("watches.mqtt.broker: must be the name of one of devices.mqtt, got %q", ferrule.Clean(m.Broker, ferrule.MaxWord))
	case strings.ContainsAny(m.Topic, "+#\x00") || strings.HasPrefix(m.Topic, "$") || len(m.Topic) > ferrule.MaxText || strings.HasSuffix(m.Topic, "/"):
		return errors.New("watches.mqtt.topic: must be a topic such as ferrule/watches")
	}
	return nil
}
