package hass

import (
	"regexp"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
)

// The reasons for which a tool is held back. They are part of a manifest, so they name no
// topic: devices of one model have equal ones.
const (
	heldEmpty    = "its command topic is empty"
	heldLong     = "its command topic is too long"
	heldWildcard = "its command topic has a wildcard or an invalid character"
	heldSystem   = "its command topic belongs to the broker"
	heldConfig   = "its command topic is one for discovery messages"
	heldBridge   = "its command topic controls the bridge and not the device"
	heldForeign  = "its command topic belongs to another device"
	heldOutside  = "its command topic is outside the device's own topics"
)

// maxTopic is the length of the longest topic that is used. MQTT allows 64 KB.
const maxTopic = 1024

// quarantine returns why a tool must not be used, or an empty text. The hub has judged the
// topics of the configs. What it does not know is checked here.
func quarantine(tool entity.Tool, o *offer) string {
	if len(tool.Topics) == 0 {
		return heldEmpty
	}
	for _, topic := range tool.Topics {
		if reason, known := o.Topics[topic]; known {
			if reason != "" {
				return reason
			}
			continue
		}
		if reason := checkCommand(topic, o.Prefix); reason != "" {
			return reason
		}
		if slices.Contains(o.Foreign, topic) {
			return heldForeign
		}
		if len(o.Topics) > 0 {
			return heldOutside
		}
	}
	return ""
}

// checkCommand returns why nothing may be published to a topic, whichever device asks for
// it: the rights of the gateway at the broker are not those of the device.
func checkCommand(topic, prefix string) string {
	switch {
	case topic == "":
		return heldEmpty
	case len(topic) > maxTopic:
		return heldLong
	case !plain(topic):
		return heldWildcard
	case topic[0] == '$':
		return heldSystem
	case prefix != "" && (topic == prefix || strings.HasPrefix(topic, prefix+"/")):
		return heldConfig
	case strings.Contains("/"+topic+"/", "/bridge/request/"):
		return heldBridge
	}
	return ""
}

// plain reports whether a topic has neither wildcards nor characters that a broker may
// refuse. A broker ends the connection of all devices for such a topic.
func plain(topic string) bool {
	return strings.IndexFunc(topic, func(r rune) bool { return r == '+' || r == '#' || r < ' ' || r == 0x7f || r == '\uFFFD' }) < 0
}

// checkState returns why a state topic may not be subscribed to, or an empty text.
func checkState(topic, prefix string) string {
	switch {
	case topic == "" || len(topic) > maxTopic || !plain(topic):
		return "it is empty, too long or has a wildcard"
	case topic[0] == '$':
		return "it belongs to the broker"
	case strings.HasPrefix(topic, prefix+"/") && strings.HasSuffix(topic, "/config"):
		return "it is one for discovery messages"
	}
	return ""
}

// isUpdateOfBridge reports the one request to a bridge that a device may make: Zigbee2MQTT
// updates firmware by a topic of the bridge, with the device in the payload.
func isUpdateOfBridge(topic, component, origin string) bool {
	return component == "update" && origin == "Zigbee2MQTT" && strings.HasSuffix(topic, "/bridge/request/device/ota_update/update")
}

// readTopics are the options with topics that are only ever read. Any other option with a
// topic can change something, also one that is not known yet.
var readTopics = []string{
	"topic", "state_topic", "position_topic", "tilt_status_topic", "current_temperature_topic", "current_humidity_topic",
	"action_topic", "latest_version_topic", "image_topic", "url_topic", "last_reset_topic",
}

// isReadTopic reports whether an option is a topic that is only read.
func isReadTopic(key string) bool {
	return slices.Contains(readTopics, key) || strings.HasSuffix(key, "_state_topic")
}

// topicsOf returns the topics that an entity is heard on and those that it is commanded
// by, each sorted. Those for availability are not among them.
func topicsOf(e *discovery.Entity) (heard, commanded []string) {
	const other = "\x00" // a list, an object or null
	for key := range e.Options {
		topic := e.Options.Text(key, other) // 5 is a topic, too, for those who send
		switch {
		case topic == other || !strings.HasSuffix(key, "topic") || key == "availability_topic" || key == "json_attributes_topic":
		case isReadTopic(key):
			heard = append(heard, topic)
		default:
			commanded = append(commanded, topic)
		}
	}
	slices.Sort(heard)
	slices.Sort(commanded)
	return slices.Compact(heard), slices.Compact(commanded)
}

// aspects are segments of a topic that name an aspect of a device and not the device.
var aspects = map[string]bool{
	"state": true, "states": true, "status": true, "stat": true, "tele": true, "cmnd": true, "availability": true, "available": true,
	"lwt": true, "online": true, "up": true, "connected": true, "alive": true, "result": true, "value": true, "json": true, "get": true,
}

// root returns the part of a topic that stands for the device, or for a part of it: what
// comes before the first segment that names an aspect. An aspect at the beginning is left
// out, because Tasmota begins with it: stat/NAME/RESULT, cmnd/NAME/POWER.
//
//	zigbee2mqtt/lamp -> zigbee2mqtt/lamp        porch/lock/front/state -> porch/lock/front
//	porch/status -> porch                       tele/plug/LWT -> plug
func root(topic string) string {
	segments := strings.Split(trimAspect(topic), "/")
	for i, segment := range segments {
		if i > 0 && aspects[strings.ToLower(segment)] {
			segments = segments[:i]
			break
		}
	}
	return strings.Join(segments, "/")
}

func trimAspect(topic string) string {
	topic = strings.TrimPrefix(topic, "/")
	if first, rest, found := strings.Cut(topic, "/"); found && aspects[strings.ToLower(first)] {
		return rest
	}
	return topic
}

// within reports whether a topic is a root or below it.
func within(topic, root string) bool {
	return root != "" && (topic == root || strings.HasPrefix(topic, root) && topic[len(root)] == '/')
}

// eui64 matches the address of a Zigbee device. Zigbee2MQTT takes it in place of the name.
var eui64 = regexp.MustCompile(`0x[0-9a-f]{16}`)

// addresses returns the addresses of Zigbee devices in a text.
func addresses(text string) []string { return eui64.FindAllString(strings.ToLower(text), -1) }

// territory is what is known about the topics of one device.
type territory struct {
	roots []string // of the topics that it alone is heard on
	heard []string // these topics
	names []string // how the device and its publisher call it, in lower case
}

// owns reports whether a command topic is in the device's own subtree. It is if
//
//   - it is below the root of a topic on which the device is heard, or of an availability
//     topic that only this device has: zigbee2mqtt/lamp/set, porch/button/restart/command,
//     cmnd/plug/POWER; or
//   - it is beside such a topic, two levels deep at least: acme/7f3a/set, acme/7f3a/power; or
//   - one of its segments, other than the last, is the node ID, an identifier, the MAC
//     address, the serial number or the name of the device: porch/button/restart/command
//     for porch; or
//   - the device is heard on no topic at all, so that there is nothing to compare with.
//
// A lamp that is heard on zigbee2mqtt/lamp may thus not command zigbee2mqtt/lock/set. A
// device can give itself any name: a topic that another device had first is foreign,
// whatever this function says.
func (t *territory) owns(topic string) bool {
	if len(t.roots) == 0 {
		return true
	}
	trimmed := trimAspect(topic)
	if slices.ContainsFunc(t.roots, func(root string) bool { return within(trimmed, root) }) {
		return true
	}
	if parent := parentOf(topic); strings.Contains(parent, "/") && slices.ContainsFunc(t.heard, func(h string) bool { return parentOf(h) == parent }) {
		return true
	}
	segments := strings.Split(trimmed, "/")
	for _, segment := range segments[:len(segments)-1] {
		if slices.Contains(t.names, squeeze(segment)) {
			return true
		}
	}
	return false
}

func parentOf(topic string) string {
	return topic[:max(strings.LastIndexByte(topic, '/'), 0)]
}

// squeeze returns the letters and digits of a name in lower case.
func squeeze(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r >= 0x80:
			return r
		}
		return -1
	}, name)
}

// addNames adds names of the device that are long enough to identify it.
func (t *territory) addNames(names ...string) {
	for _, name := range names {
		if name = squeeze(name); len(name) >= 3 && !slices.Contains(t.names, name) {
			t.names = append(t.names, name)
		}
	}
}
