package mqttclient

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The limits of topics: the protocol's, and Mosquitto's for the number of levels. A broker
// cuts the connection of all devices for a topic that is beyond.
const (
	maxTopic  = 65535
	maxLevels = 200
)

// checkTopic returns why a message cannot be published to a topic.
func checkTopic(topic string) error {
	if strings.ContainsAny(topic, "+#") {
		return errors.New("the topic has a wildcard, + or #")
	}
	return checkText(topic)
}

// checkFilter returns why a filter cannot be subscribed to.
func checkFilter(filter string) error {
	if err := checkText(filter); err != nil {
		return err
	}
	levels := strings.Split(filter, "/")
	for i, level := range levels {
		if strings.Contains(level, "+") && level != "+" || strings.Contains(level, "#") && (level != "#" || i < len(levels)-1) {
			return errors.New("+ must be a whole level of the topic, and # the last one")
		}
	}
	return nil
}

func checkText(topic string) error {
	switch {
	case topic == "":
		return errors.New("the topic is empty")
	case len(topic) > maxTopic:
		return fmt.Errorf("the topic has %d bytes; limit is %d", len(topic), maxTopic)
	case strings.Count(topic, "/") >= maxLevels:
		return fmt.Errorf("the topic has more than %d levels", maxLevels)
	case !validText(topic):
		return errors.New("the topic is not valid UTF-8 text")
	}
	return nil
}

// validText reports whether MQTT allows a text.
func validText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// checkPublication returns why a message cannot be published.
func checkPublication(p *Publication) error {
	if err := checkTopic(p.Topic); err != nil {
		return err
	}
	if p.QoS > 1 {
		return fmt.Errorf("QoS must be 0 or 1, got %d", p.QoS)
	}
	for _, u := range p.Properties {
		if len(u.Name) > maxTopic || len(u.Value) > maxTopic || !validText(u.Name) || !validText(u.Value) {
			return errors.New("a user property is too long or not valid UTF-8 text")
		}
	}
	return nil
}

// sharePrefix starts the filter of a subscription that several clients share.
const sharePrefix = "$share/"

// special reports whether a filter is more than the topic of its messages.
func special(filter string) bool {
	return strings.ContainsAny(filter, "+#") || strings.HasPrefix(filter, sharePrefix)
}

// unshared returns the filter of a shared subscription without its prefix.
func unshared(filter string) string {
	if rest, ok := strings.CutPrefix(filter, sharePrefix); ok {
		_, filter, _ = strings.Cut(rest, "/")
	}
	return filter
}

// match reports whether a topic matches a filter with wildcards. Wildcards at the start
// do not match topics of the broker itself, which start with $.
func match(filter, topic string) bool {
	if strings.HasPrefix(topic, "$") && !strings.HasPrefix(filter, "$") {
		return false
	}
	for {
		level, moreFilter, filterGoesOn := strings.Cut(filter, "/")
		if level == "#" {
			return true
		}
		name, moreTopic, topicGoesOn := strings.Cut(topic, "/")
		if level != "+" && level != name {
			return false
		}
		if !topicGoesOn {
			return !filterGoesOn || moreFilter == "#" // a/# matches a
		}
		if !filterGoesOn {
			return false
		}
		filter, topic = moreFilter, moreTopic
	}
}
