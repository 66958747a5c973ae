package entity

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/template"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// window is how long to wait for the state that confirms a command.
const window = 5 * time.Second

// The limits of an entity.
const (
	maxName    = 48  // bytes of a name without its suffix
	maxOptions = 512 // choices of one argument
)

// builder collects what one entity offers.
type builder struct {
	*discovery.Entity
	// name is the object ID in the characters of a tool's name. label is the same for
	// people.
	name, label string
	// secret reports that the name is that of a code or a password.
	secret bool
	// assumed reports that nothing confirms a command, because the entity says so.
	assumed bool
	out     Described
}

func newBuilder(e *discovery.Entity) *builder {
	b := &builder{Entity: e, name: toolName(ownPart(e)), assumed: e.Options.Bool("optimistic", false)}
	if b.name == "" {
		b.name = toolName(e.Component)
	}
	b.label = label(b.Component, b.name)
	b.secret = isSecret(e)
	return b
}

// label returns what a text calls an entity, for example "the lock" or "the switch kettle".
func label(component, name string) string {
	what := strings.ReplaceAll(component, "_", " ")
	name = strings.ReplaceAll(name, "_", " ")
	switch {
	case component == "climate" && name == what:
		return "the thermostat"
	case strings.Contains(name, what) || slices.Contains(values, component):
		return "the " + name
	}
	return "the " + what + " " + name
}

// values are components that are only a value of a device.
var values = []string{"number", "select", "text", "date", "time", "datetime", "update", "notify", "infrared"}

// isSecret reports whether the value of an entity opens something, as its name or mode says.
func isSecret(e *discovery.Entity) bool {
	onOff := e.Component == "switch" || e.Component == "binary_sensor"
	return secretName(toolName(ownPart(e))) && !onOff || e.Options.Text("mode", "") == "password"
}

// ownPart returns the object ID without the node ID in front of it, which some publishers
// repeat: it identifies the device, and devices of one model have the same tools.
func ownPart(e *discovery.Entity) string {
	node := len(e.NodeID)
	if node == 0 || len(e.ObjectID) < node+2 || !strings.EqualFold(e.ObjectID[:node], e.NodeID) || !strings.ContainsRune("_-", rune(e.ObjectID[node])) {
		return e.ObjectID
	}
	return e.ObjectID[node+1:]
}

// toolName returns the letters, digits and underscores of a name.
func toolName(s string) string {
	name := make([]byte, 0, min(len(s), maxName))
	for _, c := range []byte(s) {
		if len(name) == maxName {
			break
		}
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9':
			name = append(name, c)
		case len(name) > 0 && name[len(name)-1] != '_':
			name = append(name, '_')
		}
	}
	return strings.TrimRight(string(name), "_")
}

// secrets matches names of values that open something.
var secrets = regexp.MustCompile(`(?i)pin_?code|pass_?(word|code|phrase)|(^|_)(user|admin|master|action|access|door|lock|unlock|entry|alarm|pairing|key)_?codes?(_|$)|(^|_)(pin|credential|secret|wifi_config)s?(_?\d+)?$`)

// HasSecret reports whether what an entity is told or says may be a secret, such as the
// code of a lock.
func HasSecret(e *discovery.Entity) bool {
	return e.Component == "lock" || e.Component == "alarm_control_panel" || isSecret(e)
}

// secretName reports whether the value of something with this name is kept secret.
func secretName(name string) bool { return secrets.MatchString(name) }

// suffixed returns the name of a tool or a state of the entity. The suffix may be empty,
// and is left out if the name has it already.
func (b *builder) suffixed(suffix string) string {
	if suffix == "" || b.name == suffix || strings.HasSuffix(b.name, "_"+suffix) {
		return b.name
	}
	return b.name + "_" + suffix
}

var deviceClass = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)

// class returns the class of a tool: component, device class if there is one, action.
func (b *builder) class(action string) string {
	if class := b.Options.Text("device_class", ""); deviceClass.MatchString(class) {
		return b.Component + "." + class + "." + action
	}
	return b.Component + "." + action
}

// note says what was left out and why.
func (b *builder) note(format string, args ...any) {
	b.out.Notes = append(b.out.Notes, b.Component+" "+b.name+": "+ferrule.Clean(fmt.Sprintf(format, args...), ferrule.MaxText))
}

// template parses the template of an option; it is nil if there is none.
func (b *builder) template(key string) (*template.Template, error) {
	text := b.Options.Text(key, "")
	if text == "" {
		return nil, nil
	}
	t, err := template.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return t, nil
}

// sender publishes on one command topic.
type sender struct {
	topic    string
	template *template.Template
	err      error // a template that is not understood
}

// sender returns what publishes on the topic of an option, through the template of another
// one if the entity has that. It is nil if there is no topic.
func (b *builder) sender(topicKey, templateKey string) *sender {
	topic := b.Options.Text(topicKey, "")
	if topic == "" {
		return nil
	}
	s := &sender{topic: topic}
	s.template, s.err = b.template(templateKey)
	return s
}

// errTemplate has no detail, because the variables may be secret.
var errTemplate = errors.New("the command template of the device failed for these arguments")

// payload returns the message for a value. A template sees it as value, and more variables.
// Without a template, the value is printed.
func (s *sender) payload(value any, more template.Vars) (Publication, error) {
	if s.err != nil {
		return Publication{}, s.err
	}
	if s.template == nil {
		return Publication{Topic: s.topic, Payload: []byte(print(value))}, nil
	}
	vars := template.Vars{"value": value}
	maps.Copy(vars, more)
	vars, harmless := split(vars)
	text, err := s.template.Render(vars)
	if err != nil {
		return Publication{}, errTemplate
	}
	if harmless != nil {
		expected, err := s.template.Render(harmless)
		if err != nil {
			return Publication{}, errTemplate
		}
		if err := checkForm(text, expected); err != nil {
			return Publication{}, err
		}
	}
	return Publication{Topic: s.topic, Payload: []byte(text)}, nil
}

// action is a tool before it has its name and class.
type action struct {
	// suffix is added to the name of the entity, and verb to its class.
	suffix, verb string
	text         string
	args         []property
	// senders are all that command may use; nil ones are ignored. The tool is in quarantine
	// if the template of one is not understood.
	senders []*sender
	command func(args map[string]any) (Command, error)
	// quarantine is another reason for quarantine.
	quarantine string
}

// tool adds a tool.
func (b *builder) tool(a action) {
	t := Tool{Command: a.command}
	t.Name, t.Text, t.Class = b.suffixed(a.suffix), a.text, b.class(a.verb)
	t.Input = object(a.args...)
	t.UserOnly = b.Options.Text("entity_category", "") == "config"
	t.Quarantine = a.quarantine
	if t.Input == nil && t.Quarantine == "" { // it would take any arguments
		t.Quarantine = "its arguments cannot be described"
	}
	for _, p := range a.args {
		if p.hidden {
			t.Secrets = append(t.Secrets, p.name)
		}
	}
	for _, s := range a.senders {
		if s == nil {
			continue
		}
		t.Topics = append(t.Topics, s.topic)
		if s.err != nil && t.Quarantine == "" {
			t.Quarantine = ferrule.Clean(s.err.Error(), ferrule.MaxText)
		}
	}
	b.out.Tools = append(b.out.Tools, t)
}

// state adds a state that is read from the topic of an option through the template of
// another one. Its Name is the suffix. It returns the name for expect, which is empty if
// there is no such state or if the entity says that nothing confirms a command.
func (b *builder) state(s State, topicKey, templateKey string) string {
	return b.stateFrom(s, b.Options.Text(topicKey, ""), b.Options.Text(templateKey, ""))
}

// stateFrom is the same with a topic and the text of a template.
func (b *builder) stateFrom(s State, topic, text string) string {
	if topic == "" {
		return ""
	}
	if text != "" {
		t, err := template.Parse(text)
		if err != nil {
			b.note("its state cannot be read: %v", err)
			return ""
		}
		s.Template = t
	}
	s.Name, s.Topic = b.stateName(s.Name), topic
	if b.secret {
		s.Secret, s.Signal = true, false
	}
	b.out.States = append(b.out.States, s)
	if b.assumed {
		return ""
	}
	return s.Name
}

// single returns a command of one message. Commands do not refer to the builder: it would
// keep all options of the entity in memory.
func single(s *sender, value any, more template.Vars, expect []Expectation) (Command, error) {
	p, err := s.payload(value, more)
	if err != nil {
		return Command{}, err
	}
	return Command{Publish: []Publication{p}, Expect: expect, Window: window}, nil
}

// expect returns the expectation that a state has a value, or none if the name is empty.
func expect(state string, want Value) []Expectation {
	if state == "" {
		return nil
	}
	return []Expectation{{State: state, Matches: want.equal}}
}

// unit returns the unit of the entity, without what some devices put around it.
func (b *builder) unit() string {
	unit := strings.Join(strings.Fields(ferrule.Clean(b.Options.Text("unit_of_measurement", ""), ferrule.MaxWord)), " ")
	if len([]rune(unit)) > ferrule.MaxUnit {
		return ""
	}
	return unit
}

// seconds returns an option that is a number of seconds.
func (b *builder) seconds(key string) time.Duration {
	const most = 30 * 24 * 3600
	return time.Duration(min(max(b.Options.Number(key, 0), 0), most) * float64(time.Second))
}
