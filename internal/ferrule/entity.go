package ferrule

// Entity is how a part of a device appears in Home Assistant, if the owner says so: a lock, a
// cover or a valve, which are never guessed.
type Entity struct {
	// Component is Home Assistant's word for the sort of entity. EntityNone removes one that
	// would appear otherwise.
	Component string `json:"component"`
	Name      string `json:"name,omitempty"`
	// Class is the device class, for example garage.
	Class string `json:"class,omitempty"`
	// Signal is the signal that has the state. A lock is locked and a cover is open at 1, or
	// the other way around if Inverted is set. With the command set it is the position.
	Signal   string `json:"signal,omitempty"`
	Inverted bool   `json:"inverted,omitempty"`
	// Commands are calls by what Home Assistant can ask for, for example unlock.
	Commands map[string]EntityCommand `json:"commands,omitempty"`
}

// EntityCommand is a call of a tool. Argument names the argument that gets the value, for
// the command set.
type EntityCommand struct {
	Action
	Argument string `json:"argument,omitempty"`
}

// EntityNone is the Component that removes an entity.
const EntityNone = "none"

// entityCommands are the commands of each component.
var entityCommands = map[string][]string{
	"switch": {"on", "off"}, "button": {"press"}, "number": {"set"}, "select": {"set"}, "text": {"set"},
	"lock": {"lock", "unlock", "open"}, "cover": {"open", "close", "stop", "set"}, "valve": {"open", "close", "stop", "set"},
	"sensor": {}, "binary_sensor": {}, EntityNone: {},
}

// EntityCommands returns the commands that a component can have. It reports false for an
// unknown component.
func EntityCommands(component string) ([]string, bool) {
	all, ok := entityCommands[component]
	return all, ok
}

// EntityOrigin is the name of the publisher in discovery messages of gateways, and
// EntityPrefix begins the identifiers of their devices in Home Assistant. What has them is
// never read as a device: it would appear twice, and then again.
const (
	EntityOrigin = "Ferrule"
	EntityPrefix = "ferrule_"
)

// MaxEntities is the number of entities that one overlay may have.
const MaxEntities = 256
