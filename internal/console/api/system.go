package api

import (
	"context"
	"net/http"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
)

// SystemParts is what the API needs to know about the gateway itself.
type SystemParts struct {
	// Info returns what everybody who logs in may know.
	Info func() SystemInfo
	// Config returns the configuration in force, without secrets.
	Config func() []ConfigValue
	// Verify checks the journals of all nodes.
	Verify func(ctx context.Context) (audit.Verification, error)
	// Doctor examines this machine. It takes seconds.
	Doctor func(ctx context.Context) []Finding
}

// SystemInfo is the state of the gateway itself.
type SystemInfo struct {
	Version string    `json:"version"`
	Go      string    `json:"go" jsonschema:"version of Go that it was built with"`
	Started time.Time `json:"started"`
	Listen  string    `json:"listen,omitempty" jsonschema:"address of the HTTP server"`
	// Mode is how the node is connected to others: embedded if it is alone.
	Mode    string    `json:"mode"`
	Node    string    `json:"node"`
	Tenant  string    `json:"tenant"`
	Working bool      `json:"working" jsonschema:"whether the engine works"`
	Since   time.Time `json:"since" jsonschema:"since when"`
	Reason  string    `json:"reason,omitempty" jsonschema:"why it does not"`
	Nodes   []Node    `json:"nodes" jsonschema:"this node first"`
	// Memory is what the gateway uses, in bytes.
	Memory     uint64  `json:"memory" jsonschema:"memory of this gateway in bytes"`
	Goroutines int     `json:"goroutines"`
	Storage    Storage `json:"storage"`
	Journal    Health  `json:"journal"`
	History    Health  `json:"history"`
}

// Node is a node of the cluster.
type Node struct {
	Name    string `json:"name"`
	This    bool   `json:"this"`
	Devices int    `json:"devices" jsonschema:"devices that the person may see"`
}

// Storage is the size of what is on disk, in bytes.
type Storage struct {
	Free         uint64           `json:"free" jsonschema:"free space of the disk"`
	Journal      int64            `json:"journal"`
	JournalFiles int              `json:"journal_files" jsonschema:"sealed segments"`
	SegmentSize  int64            `json:"segment_size" jsonschema:"when a segment is sealed"`
	SegmentAge   ferrule.Duration `json:"segment_age" jsonschema:"when a segment is sealed"`
	History      int64            `json:"history"`
	HistoryLimit int64            `json:"history_limit,omitempty" jsonschema:"0 is unlimited"`
	RawFor       ferrule.Duration `json:"raw_for,omitempty" jsonschema:"how long raw measurements are kept"`
	Streams      int64            `json:"streams" jsonschema:"streams between nodes"`
	StreamsLimit int64            `json:"streams_limit,omitempty"`
}

// Health says whether a part works.
type Health struct {
	Working bool   `json:"working"`
	Problem string `json:"problem,omitempty"`
}

// ConfigValue is a key of the configuration in force.
type ConfigValue struct {
	Key   string `json:"key" jsonschema:"path of the key, such as calls.deadline"`
	Value string `json:"value" jsonschema:"the value; a secret is not shown"`
	// Source is default, the name of the file, or where else it is from.
	Source string `json:"source" jsonschema:"default, the name of the file, or flag or variable"`
	Secret bool   `json:"secret,omitempty"`
}

// Finding is the result of one check of the doctor.
type Finding struct {
	Area  string `json:"area"`
	Check string `json:"check"`
	About string `json:"about,omitempty" jsonschema:"file, port or device"`
	State string `json:"state" jsonschema:"fine, note or wrong"`
	Found string `json:"found"`
	Next  string `json:"next,omitempty" jsonschema:"what to do"`
}

// systemOperations returns the operations on the gateway itself.
func (a *API) systemOperations() []Operation {
	return []Operation{
		operation(http.MethodGet, "/system", "Return the state of the gateway itself: nodes, engine, memory and storage.", ferrule.ScopeRead, a.System),
		operation(http.MethodGet, "/status", "Return the numbers of devices, and problems of brokers and endpoints.", ferrule.ScopeRead, a.Status),
		operation(http.MethodGet, "/system/config", "Return the configuration in force, without secrets.", ferrule.ScopeAdmin, a.Config),
		operation(http.MethodGet, "/system/doctor", "Return the findings of the doctor, as of the last time.", ferrule.ScopeAdmin, a.Doctor),
		operation(http.MethodPost, "/system/doctor", "Start the doctor. It takes about five seconds.", ferrule.ScopeAdmin, a.RunDoctor),
		operation(http.MethodGet, "/people", "List the people who may log in.", ferrule.ScopeAdmin, a.People),
		operation(http.MethodPost, "/people", "Add a person.", ferrule.ScopeAdmin, a.AddPerson),
		operation(http.MethodPost, "/people/{name}/role", "Give a person another role.", ferrule.ScopeAdmin, a.SetPersonRole),
		operation(http.MethodPost, "/people/{name}/remove", "Remove a person and end the person's sessions.", ferrule.ScopeAdmin, a.RemovePerson),
		operation(http.MethodPost, "/people/{name}/logout", "End all sessions of a person.", ferrule.ScopeAdmin, a.LogoutPerson),
	}
}

// System returns the state of the gateway. Nodes have the devices that the person may see.
func (a *API) System(_ context.Context, who ferrule.Principal, _ NoInput) (SystemInfo, error) {
	if a.parts.System.Info == nil {
		return SystemInfo{}, ferrule.Errorf(ferrule.Internal, "the state of the gateway is not known here")
	}
	info := a.parts.System.Info()
	count := make(map[string]int)
	seen := a.visible(who)
	for _, e := range a.devices.sorted() {
		if who.CanSee(e.dev) && seen.Device(e.dev, e.manifest) {
			count[e.dev.Node]++
		}
	}
	for i := range info.Nodes {
		info.Nodes[i].Devices = count[info.Nodes[i].Name]
	}
	if !who.Scopes.Has(ferrule.ScopeAdmin) {
		info.Listen, info.Reason, info.Journal.Problem, info.History.Problem = "", "", "", "" // they may name addresses and files
	}
	return info, nil
}

// Status returns what the status tool says.
func (a *API) Status(ctx context.Context, who ferrule.Principal, _ NoInput) (builtin.StatusOutput, error) {
	return Builtin[builtin.StatusOutput](ctx, a, who, "status", builtin.StatusInput{})
}

// ConfigOutput is the configuration in force.
type ConfigOutput struct {
	Values []ConfigValue `json:"values" jsonschema:"in the order of the sample file"`
}

// Config returns the configuration in force.
func (a *API) Config(_ context.Context, who ferrule.Principal, _ NoInput) (out ConfigOutput, err error) {
	if err := Allowed(who, ferrule.ScopeAdmin); err != nil {
		return out, err
	}
	if a.parts.System.Config != nil {
		out.Values = a.parts.System.Config()
	}
	return out, nil
}

// DoctorOutput is what the doctor found.
type DoctorOutput struct {
	JobState
	Findings []Finding `json:"findings" jsonschema:"of the last time"`
}

// Doctor returns the findings of the last time.
func (a *API) Doctor(_ context.Context, who ferrule.Principal, _ NoInput) (out DoctorOutput, err error) {
	if err := Allowed(who, ferrule.ScopeAdmin); err != nil {
		return out, err
	}
	out.Findings, out.JobState = a.doctor.get()
	return out, nil
}

// RunDoctor starts the doctor, unless it is running.
func (a *API) RunDoctor(ctx context.Context, who ferrule.Principal, in NoInput) (DoctorOutput, error) {
	if err := Allowed(who, ferrule.ScopeAdmin); err != nil {
		return DoctorOutput{}, err
	}
	if a.parts.System.Doctor == nil {
		return DoctorOutput{}, ferrule.Errorf(ferrule.Internal, "the doctor is not available here")
	}
	a.doctor.start(a.parts.System.Doctor)
	return a.Doctor(ctx, who, in)
}

// People returns the people who may log in.
func (a *API) People(ctx context.Context, who ferrule.Principal, _ NoInput) (builtin.ListPeopleOutput, error) {
	return Builtin[builtin.ListPeopleOutput](ctx, a, who, "list_people", builtin.ListPeopleInput{})
}

// AddPerson adds a person.
func (a *API) AddPerson(ctx context.Context, who ferrule.Principal, in builtin.PersonRoleInput) (ferrule.KnownPerson, error) {
	return Builtin[ferrule.KnownPerson](ctx, a, who, "add_person", in)
}

// SetPersonRole gives a person another role.
func (a *API) SetPersonRole(ctx context.Context, who ferrule.Principal, in builtin.PersonRoleInput) (ferrule.KnownPerson, error) {
	return Builtin[ferrule.KnownPerson](ctx, a, who, "set_person_role", in)
}

// RemovePerson removes a person.
func (a *API) RemovePerson(ctx context.Context, who ferrule.Principal, in builtin.PersonInput) (ferrule.KnownPerson, error) {
	return Builtin[ferrule.KnownPerson](ctx, a, who, "remove_person", in)
}

// LogoutPerson ends all sessions of a person.
func (a *API) LogoutPerson(ctx context.Context, who ferrule.Principal, in builtin.PersonInput) (ferrule.KnownPerson, error) {
	return Builtin[ferrule.KnownPerson](ctx, a, who, "logout_person", in)
}

// LoginLink returns a link that logs in one browser as a person. Pages show it once; it is
// a secret, so there is no operation for it.
func (a *API) LoginLink(ctx context.Context, who ferrule.Principal, name string) (ferrule.LoginLink, error) {
	return Builtin[ferrule.LoginLink](ctx, a, who, "create_login_link", builtin.LoginLinkInput{Name: name})
}
