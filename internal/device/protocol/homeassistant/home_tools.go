package homeassistant

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// listInput is the input of list_automations and list_scenes.
type listInput struct {
	Pattern string `json:"pattern,omitempty" jsonschema:"part of the entity_id or name; * stands for anything"`
}

// listEntities returns a tool that lists the entities of a domain.
func listEntities(name, domain, text string) homeTool {
	return typed(ferrule.Tool{Name: name, Effect: ferrule.Reads, Text: text},
		func(_ context.Context, s *homeSession, call *ferrule.Call, in listInput) (findOutput, error) {
			all := slices.DeleteFunc(s.entities(call, domain, false), func(e foundEntity) bool { return !(findInput{Pattern: in.Pattern}).fits(e) })
			return findOutput{Entities: append([]foundEntity{}, all[:min(len(all), maxFound)]...), Total: len(all)}, nil
		})
}

func listAutomations() homeTool {
	return listEntities("list_automations", "automation", "Lists the automations that agents may use. The state is on if an automation is enabled.")
}

func listScenes() homeTool {
	return listEntities("list_scenes", "scene", "Lists the scenes that agents may use. The state is when a scene was last activated.")
}

// notifyInput is the input of notify.
type notifyInput struct {
	Message string `json:"message"`
	Title   string `json:"title,omitempty"`
	Target  string `json:"target,omitempty" jsonschema:"who gets it: a service such as mobile_app_anna; default: the page of notifications in Home Assistant"`
}

// ownNotification is the domain of notifications in Home Assistant itself.
const ownNotification = "persistent_notification"

func sendNotification() homeTool {
	return typed(ferrule.Tool{Name: "notify", Effect: ferrule.Changes, Text: "Sends a message to people: to a phone or another target of the home, or to the notifications in Home Assistant."},
		func(ctx context.Context, s *homeSession, call *ferrule.Call, in notifyInput) (outcome, error) {
			if strings.TrimSpace(in.Message) == "" {
				return outcome{}, ferrule.Errorf(ferrule.Invalid, "message must not be empty")
			}
			data := map[string]any{"message": in.Message}
			if in.Title != "" {
				data["title"] = in.Title
			}
			// Services that send by themselves; send_message is for entities.
			services := slices.DeleteFunc(s.hub.servicesOfDomain("notify"), func(name string) bool { return name == "send_message" })
			switch {
			case in.Target == "" || in.Target == ownNotification:
				return s.perform(ctx, call, order{domain: ownNotification, service: "create", data: data})
			case slices.Contains(services, in.Target):
				return s.perform(ctx, call, order{domain: "notify", service: in.Target, data: data})
			}
			return outcome{}, ferrule.Errorf(ferrule.Invalid, "the home has no target %q", ferrule.Clean(in.Target, ferrule.MaxWord)).
				WithHint("targets: %s; a notify entity has a tool of its own", list(append(services, ownNotification)))
		})
}

// servicesOfDomain returns the names of the services of a domain.
func (h *Hub) servicesOfDomain(domain string) (names []string) {
	for _, service := range h.servicesThat(func(s *home.Service) bool { return s.Domain == domain }) {
		names = append(names, service.Name)
	}
	return names
}

// servicesThat returns the services that fit.
func (h *Hub) servicesThat(fits func(*home.Service) bool) (all []home.Service) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.services {
		if fits(&h.services[i].Service) {
			all = append(all, h.services[i].Service)
		}
	}
	return all
}

// servicesInput is the input of find_services.
type servicesInput struct {
	Domain  string `json:"domain,omitempty" jsonschema:"such as light or script"`
	Pattern string `json:"pattern,omitempty" jsonschema:"part of DOMAIN.SERVICE or of its description; * stands for anything"`
}

// foundService is a service in a result.
type foundService struct {
	Domain   string         `json:"domain"`
	Service  string         `json:"service"`
	Text     string         `json:"text,omitempty"`
	Fields   []serviceField `json:"fields,omitempty"`
	Targets  bool           `json:"targets,omitempty" jsonschema:"whether it acts on entities"`
	Response string         `json:"response,omitempty" jsonschema:"optional or always, if it answers"`
}

// serviceField is an argument of a service.
type serviceField struct {
	Name     string          `json:"name"`
	Text     string          `json:"text,omitempty"`
	Required bool            `json:"required,omitempty"`
	Selector json.RawMessage `json:"selector,omitempty"`
}

// servicesOutput is the output of find_services.
type servicesOutput struct {
	Services []foundService `json:"services"`
	Total    int            `json:"total"`
}

// maxServices is how many services a result has.
const maxServices = 30

func findServices() homeTool {
	return typed(ferrule.Tool{Name: "find_services", Effect: ferrule.Reads, Text: "Finds services of Home Assistant with their fields, for call_service."},
		func(_ context.Context, s *homeSession, _ *ferrule.Call, in servicesInput) (servicesOutput, error) {
			found := s.hub.servicesThat(func(one *home.Service) bool {
				return (in.Domain == "" || in.Domain == one.Domain) && (matches(in.Pattern, one.Domain+"."+one.Name) || matches(in.Pattern, one.Text))
			})
			out := servicesOutput{Services: []foundService{}, Total: len(found)}
			for _, one := range found[:min(len(found), maxServices)] {
				service := foundService{Domain: one.Domain, Service: one.Name, Text: one.Text, Targets: len(one.Targets) > 0, Response: one.Response}
				for _, f := range one.Fields {
					service.Fields = append(service.Fields, serviceField{Name: f.Name, Text: f.Text, Required: f.Required, Selector: f.Selector})
				}
				out.Services = append(out.Services, service)
			}
			return out, nil
		})
}

// callInput is the input of call_service.
type callInput struct {
	Domain   string           `json:"domain"`
	Service  string           `json:"service"`
	Entities []string         `json:"entities,omitempty" jsonschema:"entity_ids that it acts on"`
	Data     schema.AnyObject `json:"data,omitempty" jsonschema:"fields of the service, without a code and without entities"`
	Code     string           `json:"code,omitempty" jsonschema:"code of a lock or an alarm; it is not recorded"`
	Response bool             `json:"response,omitempty" jsonschema:"whether to return the response of the service"`
}

// forPeople are services that stop or change Home Assistant itself. Only people may call them.
var forPeople = []string{"homeassistant.stop", "homeassistant.restart", "update.install", "backup.create", "backup.create_automatic", "recorder.disable", "recorder.purge", "recorder.purge_entities"}

func callService() homeTool {
	t := typed(ferrule.Tool{
		Name: "call_service", Effect: ferrule.Endangers, Class: "call_service", Secrets: slices.Clone(secretNames),
		Text: "Calls any service of Home Assistant, also on entities that are not offered. Use the tools of devices if there are any. Find services with find_services.",
	}, func(ctx context.Context, s *homeSession, call *ferrule.Call, in callInput) (outcome, error) {
		name := in.Domain + "." + in.Service
		if call.Principal.Role != ferrule.Person && (in.Domain == "hassio" || slices.Contains(forPeople, name)) {
			return outcome{}, ferrule.Errorf(ferrule.Refused, "%s is for people: it stops or changes Home Assistant itself", name)
		}
		found := s.hub.servicesThat(func(one *home.Service) bool { return one.Domain == in.Domain && one.Name == in.Service })
		if len(found) == 0 {
			return outcome{}, ferrule.Errorf(ferrule.Refused, "Home Assistant has no service %s", ferrule.Clean(name, ferrule.MaxWord)).WithHint("find one with find_services")
		}
		o := order{domain: in.Domain, service: in.Service, entities: in.Entities, answer: in.Response || found[0].Response == "always", data: map[string]any{}}
		if len(in.Data) > 0 && json.Unmarshal(in.Data, &o.data) != nil {
			return outcome{}, ferrule.Errorf(ferrule.Invalid, "data must be an object")
		}
		if key := findSecret(o.data); key != "" {
			return outcome{}, ferrule.Errorf(ferrule.Invalid, "data must not contain %s", ferrule.Clean(key, ferrule.MaxWord)).WithHint("a code of a lock or an alarm is the argument code")
		}
		for _, key := range targetNames {
			if _, ok := o.data[key]; ok {
				return outcome{}, ferrule.Errorf(ferrule.Invalid, "data must not contain %s", key).WithHint("name what it acts on in the argument entities")
			}
		}
		if in.Code != "" {
			o.data["code"], o.secrets = in.Code, []string{in.Code}
		}
		return s.perform(ctx, call, o)
	})
	t.tool.Input = withPlainData(t.tool.Input)
	return t
}

// secretNames are members that are not recorded, wherever they are in the arguments.
var secretNames = []string{"code", "password", "pin", "pin_code", "token", "access_token", "api_key", "secret"}

// targetNames are the members of data by which Home Assistant chooses entities. Rules are asked
// about the argument entities, so no other one may add to it.
var targetNames = []string{"entity_id", "device_id", "area_id", "floor_id", "label_id"}

// findSecret returns the name of a member that may be a secret, at any depth; "" if there is
// none.
func findSecret(value any) string {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			if home.Secret(name) {
				return name
			}
			if found := findSecret(member); found != "" {
				return found
			}
		}
	case []any:
		for _, element := range value {
			if found := findSecret(element); found != "" {
				return found
			}
		}
	}
	return ""
}

// withPlainData forbids secrets and targets in data. Arguments that do not fit the schema are
// not recorded, and nobody is asked to approve them.
func withPlainData(input json.RawMessage) json.RawMessage {
	var all map[string]any
	if json.Unmarshal(input, &all) != nil {
		return input
	}
	forbidden := make(map[string]any)
	for _, name := range slices.Concat(secretNames, targetNames) {
		forbidden[name] = map[string]any{"type": "null"}
	}
	all["properties"].(map[string]any)["data"].(map[string]any)["properties"] = forbidden
	changed, err := json.Marshal(all)
	if err != nil {
		return input
	}
	return changed
}
