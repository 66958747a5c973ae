package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// inherited are the options that the entities of a device message take from its root.
var inherited = []string{
	"availability", "availability_mode", "availability_template", "availability_topic", "payload_available",
	"payload_not_available", "command_topic", "state_topic", "qos", "encoding", "message_expiry_interval",
}

// ignored are options without a meaning here. The first ones are read elsewhere.
var ignored = []string{
	"components", "device", "origin", "platform", "default_entity_id", "entity_picture", "group", "icon", "json_attributes",
	"json_attributes_template", "json_attributes_topic", "object_id",
}

// Parse reads a message. An empty payload is an error here: it removes the entity. So is a
// message that has two members with one name, because another reader may take the other.
func Parse(topic Topic, payload []byte) (*Message, error) {
	root, err := decode(payload)
	if err != nil {
		return nil, err
	}
	p := parser{topic: topic, names: abbreviations()["entity"], room: MaxPayload}
	expand(root, p.names)
	if migrate, _ := root["migrate_discovery"].(bool); migrate && len(root) == 1 {
		p.message.Whole = topic.Component == device
		p.message.Migrate = true
		return &p.message, nil
	}
	expandAvailability(root, p.names)
	if err := check(root); err != nil {
		return nil, err
	}
	if err := p.blocks(root); err != nil {
		return nil, err
	}
	if topic.Component == device {
		err = p.whole(root)
	} else {
		err = p.single(root)
	}
	if err != nil {
		return nil, err
	}
	return &p.message, nil
}

// decode reads an object within the limits.
func decode(payload []byte) (map[string]any, error) {
	switch {
	case len(payload) == 0:
		return nil, errors.New("the payload is empty")
	case len(payload) > MaxPayload:
		return nil, fmt.Errorf("the payload has %d bytes; limit is %d", len(payload), MaxPayload)
	case !utf8.Valid(payload):
		return nil, errors.New("the payload is not valid UTF-8")
	case depth(payload) > maxDepth:
		return nil, fmt.Errorf("the payload is nested too deeply; limit is %d", maxDepth)
	}
	if err := strictjson.Check(payload); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	var root map[string]any
	if decoder.Decode(&root) != nil || root == nil {
		return nil, errors.New("the payload is not a JSON object") // the cause may show a value
	}
	return root, nil
}

// depth returns how deeply a JSON text is nested. It is right for valid texts only.
func depth(text []byte) int {
	most, now, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			now++
			most = max(most, now)
		case c == '}', c == ']':
			now--
		}
	}
	return most
}

// parser has what is known while a message is read.
type parser struct {
	topic   Topic
	names   map[string]string // abbreviations of entities
	message Message
	// room is how many bytes may still be added by expanding base topics.
	room int
}

func (p *parser) note(format string, args ...any) {
	if len(p.message.Notes) < maxNotes {
		p.message.Notes = append(p.message.Notes, fmt.Sprintf(format, args...))
	}
}

// blocks reads the device and origin.
func (p *parser) blocks(root map[string]any) error {
	block, _ := root["device"].(map[string]any)
	if block == nil {
		return errors.New("the message has no device")
	}
	expand(block, abbreviations()["device"])
	p.device(block)
	if p.message.Device.Key() == "" {
		return errors.New("the device has neither identifiers nor a MAC address")
	}
	if block, _ := root["origin"].(map[string]any); block != nil {
		expand(block, abbreviations()["origin"])
		p.message.Origin = Origin{Name: shown(block, "name"), Version: shown(block, "sw_version")}
	}
	return nil
}

func (p *parser) device(block map[string]any) {
	d := &p.message.Device
	for _, id := range Options(block).List("identifiers") {
		switch {
		case id == "" || slices.Contains(d.Identifiers, id):
		case len(id) > maxID || !ferrule.Visible(id) || strings.TrimSpace(id) == "":
			p.note("an identifier is too long or has invisible characters")
		case len(d.Identifiers) == maxIDs:
			p.note("the device has more than %d identifiers", maxIDs)
			return
		default:
			d.Identifiers = append(d.Identifiers, id)
		}
	}
	d.MAC = address(block["connections"])
	d.Name, d.Manufacturer = shown(block, "name"), shown(block, "manufacturer")
	d.Model, d.ModelID = shown(block, "model"), shown(block, "model_id")
	d.Version = shown(block, "sw_version")
	d.Serial, d.Area = shown(block, "serial_number"), shown(block, "suggested_area")
}

// shown returns a text of a block that people may see.
func shown(block map[string]any, key string) string {
	return strings.TrimSpace(ferrule.Clean(Options(block).Text(key, ""), maxShown))
}

// address returns the first hardware address in a list of connections.
func address(connections any) string {
	list, _ := connections.([]any)
	for i, each := range list {
		pair, _ := each.([]any)
		if i == maxConnection || len(pair) != 2 {
			continue
		}
		text, _ := pair[1].(string)
		text = strings.ToLower(strings.NewReplacer(":", "", "-", "", ".", "").Replace(strings.TrimPrefix(text, "0x")))
		if (len(text) == 12 || len(text) == 16) && strings.Trim(text, "0123456789abcdef") == "" {
			return text
		}
	}
	return ""
}

// single reads a message about one entity.
func (p *parser) single(root map[string]any) error {
	options, err := p.options(root)
	if err != nil {
		return err
	}
	if len(options) == 0 {
		return errors.New("the message has no options")
	}
	p.message.Entities = []Entity{{p.topic.Component, p.topic.NodeID, p.topic.ObjectID, p.topic.String(), options}}
	return nil
}

// whole reads a message about all entities of a device.
func (p *parser) whole(root map[string]any) error {
	p.message.Whole = true
	for key := range root {
		if !slices.Contains(inherited, key) && key != "device" && key != "origin" && key != "components" {
			return fmt.Errorf("unknown key %.64q beside the components", key)
		}
	}
	if p.message.Origin.Name == "" {
		return errors.New("the message has no origin with a name")
	}
	components, _ := root["components"].(map[string]any)
	if components == nil {
		return errors.New("the message has no components")
	}
	if len(components) > MaxEntities {
		return fmt.Errorf("the message has %d components; limit is %d", len(components), MaxEntities)
	}
	for _, key := range slices.Sorted(maps.Keys(components)) {
		entity, err := p.component(root, key, components[key])
		if err != nil {
			p.note("component %.64q: %v", ferrule.Clean(key, maxShown), err)
			continue
		}
		p.message.Entities = append(p.message.Entities, entity)
	}
	slices.SortStableFunc(p.message.Entities, compare)
	p.message.Entities = slices.CompactFunc(p.message.Entities, func(a, b Entity) bool {
		same := compare(a, b) == 0
		if same {
			p.note("two components have the ID %q", a.ObjectID)
		}
		return same
	})
	return nil
}

func compare(a, b Entity) int {
	if order := strings.Compare(a.Component, b.Component); order != 0 {
		return order
	}
	return strings.Compare(a.ObjectID, b.ObjectID)
}

// component reads one entity of a message about a device.
func (p *parser) component(root map[string]any, key string, value any) (Entity, error) {
	block, _ := value.(map[string]any)
	if block == nil {
		return Entity{}, errors.New("not an object")
	}
	expand(block, p.names)
	expandAvailability(block, p.names)
	platform, _ := block["platform"].(string)
	if !isComponent(platform) || platform == device {
		return Entity{}, errors.New("no valid platform")
	}
	// Home Assistant has no rule for keys. Tool names are made from them.
	id := strings.Map(func(r rune) rune {
		if notInID(r) {
			return '_'
		}
		return r
	}, key)
	if !isID(id) {
		return Entity{}, errors.New("no valid key")
	}
	entity := Entity{Component: platform, NodeID: p.topic.ObjectID, ObjectID: id, Topic: p.topic.String()}
	if p.topic.NodeID != "" {
		entity.NodeID = p.topic.NodeID + "/" + p.topic.ObjectID
	}
	if len(block) == 1 {
		return entity, nil // to be removed
	}
	if err := check(block); err != nil {
		return Entity{}, err
	}
	for _, key := range inherited {
		if value, found := root[key]; found {
			if _, own := block[key]; !own {
				block[key] = value
			}
		}
	}
	var err error
	entity.Options, err = p.options(block)
	return entity, err
}

// options returns the options of an entity, with base topics expanded.
func (p *parser) options(block map[string]any) (Options, error) {
	for _, key := range ignored {
		delete(block, key)
	}
	if block["name"] == "" {
		block["name"] = nil
	}
	if err := p.base(block); err != nil {
		return nil, err
	}
	return block, nil
}

// check returns an error if options are not within the limits.
func check(block map[string]any) error {
	if len(block) > maxOptions {
		return fmt.Errorf("%d options; limit is %d", len(block), maxOptions)
	}
	if list, _ := block["availability"].([]any); len(list) > maxAvailability {
		return fmt.Errorf("%d availability topics; limit is %d", len(list), maxAvailability)
	}
	for key, value := range block {
		if len(key) > maxText || !short(value) && !slices.Contains(ignored, key) {
			return fmt.Errorf("option %.64q is too long; limit is %d bytes", ferrule.Clean(key, maxShown), maxText)
		}
	}
	return nil
}

// short reports whether all texts and numbers in a value are within their limits.
func short(value any) bool {
	switch value := value.(type) {
	case string:
		return len(value) <= maxText
	case json.Number:
		return len(value) <= 64
	case []any:
		return !slices.ContainsFunc(value, func(each any) bool { return !short(each) })
	case map[string]any:
		for key, each := range value {
			if len(key) > maxText || !short(each) {
				return false
			}
		}
	}
	return true
}

// base replaces the base topic at the beginning and end of topics.
func (p *parser) base(block map[string]any) error {
	value, found := block["~"]
	if !found {
		return nil
	}
	delete(block, "~")
	base, ok := pythonText(value)
	if !ok || len(base) > maxBase {
		return errors.New("the base topic is not a text, or too long")
	}
	for key, value := range block {
		if text, ok := value.(string); ok && strings.HasSuffix(key, "topic") {
			block[key] = p.replace(text, base)
		}
	}
	// The list may be one that other entities of the device share.
	if list, _ := block["availability"].([]any); list != nil {
		list = slices.Clone(list)
		for i, each := range list {
			object, _ := each.(map[string]any)
			if text, ok := object["topic"].(string); ok {
				object = maps.Clone(object)
				object["topic"] = p.replace(text, base)
				list[i] = object
			}
		}
		block["availability"] = list
	}
	if p.room < 0 {
		return errors.New("base topics make the message too long")
	}
	return nil
}

// replace returns a topic with its base topic, while there is room.
func (p *parser) replace(topic, base string) string {
	first, last := strings.HasPrefix(topic, "~"), len(topic) > 1 && strings.HasSuffix(topic, "~")
	if !first && !last {
		return topic
	}
	if p.room -= len(topic) + 2*len(base); p.room < 0 {
		return topic
	}
	if last {
		topic = topic[:len(topic)-1] + base
	}
	if first {
		topic = base + topic[1:]
	}
	return topic
}
