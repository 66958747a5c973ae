// Package config is the file: it is decoded strictly, filled with defaults and
// checked, and turned into the configs of the rooms.
//
//	ferrule.yaml ─▶ Config ─▶ serial.Config, tcp.Config, web.Config, ws.Config, mqtt.Config, journal.Config,
//	                          pipeline.Config, dock.Config, catalog.Config, agent.Config, auth.Tokens,
//	                          []endpoint.Config, bus.Config, sense.Config, history.Config, observe.Config
//	overlays/*   ─▶ []*overlay.File
package config

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/endpoint"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/cluster"
	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
	"github.com/ferrulehq/ferrule/internal/device/transport/serial"
	"github.com/ferrulehq/ferrule/internal/device/transport/tcp"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// Sample is the commented file with every key, at its default.
//
//go:embed ferrule.yaml
var Sample []byte

// Config is what the file says.
type Config struct {
	// Listen is where HTTP is served.
	Listen string `yaml:"listen"`
	// Overlays is the directory of overlays.
	Overlays  string     `yaml:"overlays"`
	Devices   Devices    `yaml:"devices"`
	DialIn    DialIn     `yaml:"dial_in"`
	Agents    Agents     `yaml:"agents"`
	Auth      Auth       `yaml:"auth"`
	Endpoints []Endpoint `yaml:"endpoints"`
	Calls     Calls      `yaml:"calls"`
	Retry     Retry      `yaml:"retry"`
	Journal   Journal    `yaml:"journal"`
	Cluster   Cluster    `yaml:"cluster"`
	Polling   Polling    `yaml:"polling"`
	History   History    `yaml:"history"`
	Telemetry Telemetry  `yaml:"telemetry"`
}

// Devices names the devices that the owner asks for.
type Devices struct {
	Serial []SerialDevice `yaml:"serial"`
	TCP    []TCPDevice    `yaml:"tcp"`
	HTTP   []HTTPDevice   `yaml:"http"`
}

// SerialDevice is a board on a serial port.
type SerialDevice struct {
	Port    string `yaml:"port"`
	Baud    int    `yaml:"baud"`
	Name    string `yaml:"name"`
	Pending bool   `yaml:"pending"`
	Reset   string `yaml:"reset"`
}

// TCPDevice is a board that listens on a TCP port.
type TCPDevice struct {
	Address string `yaml:"address"`
	Name    string `yaml:"name"`
	Pending bool   `yaml:"pending"`
}

// HTTPDevice is a device that is an MCP server.
type HTTPDevice struct {
	// URL may be auto, for those that announce themselves.
	URL  string `yaml:"url"`
	Name string `yaml:"name"`
	// Token is sent to the device, or File is where it stands.
	Token   string `yaml:"token"`
	File    string `yaml:"file"`
	Pending bool   `yaml:"pending"`
}

// Auto is the URL of devices that announce themselves.
const Auto = "auto"

// DialIn is about devices that dial in.
type DialIn struct {
	// Listen is where they are served over HTTP and WebSockets; empty for nowhere.
	Listen string `yaml:"listen"`
	// URL is what they reach that under.
	URL string `yaml:"url"`
	// MQTT is where they are served over MQTT, or off. MQTTAddress is what they
	// reach that under.
	MQTT        string `yaml:"mqtt"`
	MQTTAddress string `yaml:"mqtt_address"`
	Activation  bool   `yaml:"activation"`
	Devices     int    `yaml:"devices"`
	PerHost     int    `yaml:"per_host"`
}

// mqttOff is the value of DialIn.MQTT without MQTT.
const mqttOff = "off"

// Agents is about what agents see and how they are served.
type Agents struct {
	Budget   int      `yaml:"budget"`
	Sessions int      `yaml:"sessions"`
	Idle     Interval `yaml:"idle"`
}

// Auth is about who may ask.
type Auth struct {
	Tokens []Token `yaml:"tokens"`
}

// Token is what an agent shows to be let in.
type Token struct {
	Name string `yaml:"name"`
	// Token is the secret, or File where it stands.
	Token string `yaml:"token"`
	File  string `yaml:"file"`
}

// Endpoint is where voice agents look for tools.
type Endpoint struct {
	Name string `yaml:"name"`
	// URL has a token in it, or File is where it stands.
	URL   string `yaml:"url"`
	File  string `yaml:"file"`
	Limit int    `yaml:"limit"`
	CA    string `yaml:"ca"`
}

// Calls is about calls.
type Calls struct {
	Deadline  Interval `yaml:"deadline"`
	Waiting   int      `yaml:"waiting"`
	Cache     Interval `yaml:"cache"`
	InFlight  int      `yaml:"in_flight"`
	PerMinute int      `yaml:"per_minute"`
}

// Retry is about devices that cannot be reached.
type Retry struct {
	Min Interval `yaml:"min"`
	Max Interval `yaml:"max"`
}

// Interval is a duration in the file, such as 30s.
type Interval time.Duration

// UnmarshalYAML reads what time.ParseDuration reads; its error tells the key.
func (i *Interval) UnmarshalYAML(node ast.Node) error {
	d, err := time.ParseDuration(node.GetToken().Value)
	if err != nil {
		return fmt.Errorf("%s: want a duration such as 30s, got %s", strings.TrimPrefix(node.GetPath(), "$."), node)
	}
	*i = Interval(d)
	return nil
}

// Journal is about the journal.
type Journal struct {
	// Sync is always, or an interval.
	Sync string `yaml:"sync"`
}

// syncAlways is the value of Journal.Sync that waits for the disk.
const syncAlways = "always"

// Bus is about other nodes.
type Cluster struct {
	Mode        string   `yaml:"mode"`
	Node        string   `yaml:"node"`
	Tenant      string   `yaml:"tenant"`
	Servers     []string `yaml:"servers"`
	Credentials string   `yaml:"credentials"`
	CA          string   `yaml:"ca"`
	Domain      string   `yaml:"domain"`
	Shards      int      `yaml:"shards"`
	Replicas    int      `yaml:"replicas"`
	// Store is in MiB.
	Store int64 `yaml:"store"`
	View  int   `yaml:"view"`
}

// Default is what a file without any key says.
func Default() Config {
	d, p, a, b, s, h := dock.DefaultConfig(), pipeline.DefaultConfig(), server.DefaultConfig(), cluster.DefaultConfig(), poller.DefaultConfig(), history.DefaultConfig()
	o := telemetry.DefaultConfig()
	return Config{
		Listen:   "127.0.0.1:3377",
		Overlays: "overlays",
		Calls: Calls{
			Deadline: Interval(p.Deadline), Waiting: d.Waiting,
			Cache: Interval(p.Cache), InFlight: p.InFlight, PerMinute: p.PerMinute,
		},
		DialIn:    DialIn{Devices: inbound.DefaultConfig().Max, PerHost: inbound.DefaultConfig().PerHost},
		Agents:    Agents{Budget: catalog.DefaultConfig().Budget, Sessions: a.Sessions, Idle: Interval(a.Idle)},
		Endpoints: []Endpoint{},
		Retry:     Retry{Min: Interval(d.RetryMin), Max: Interval(d.RetryMax)},
		Journal:   Journal{Sync: syncAlways},
		Cluster: Cluster{
			Mode: string(b.Mode), Tenant: b.Tenant, Servers: []string{}, Domain: b.Domain, Shards: b.Shards, Replicas: b.Replicas,
			Store: b.Store >> 20, View: b.View,
		},
		Polling: Polling{Enabled: s.Enabled, Fastest: Interval(s.Fastest), InFlight: s.InFlight},
		History: History{
			Enabled: true, Sync: Interval(h.Sync), Raw: Interval(h.Raw), Minutes: Interval(h.Minutes), Hours: Interval(h.Hours), Size: h.Size >> 20,
		},
		Telemetry: Telemetry{Metrics: o.Metrics, Readings: o.Readings, Traces: Traces{Endpoint: o.Endpoint, Ratio: o.Ratio}},
	}
}

// Load reads the file at path. The files that it names are taken to be beside it.
func Load(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	c, err := Parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	asked := c.Overlays != Default().Overlays
	if !filepath.IsAbs(c.Overlays) {
		c.Overlays = filepath.Join(filepath.Dir(path), c.Overlays)
	}
	files := []*string{&c.Cluster.Credentials, &c.Cluster.CA}
	for i := range c.Auth.Tokens {
		files = append(files, &c.Auth.Tokens[i].File)
	}
	for i := range c.Endpoints {
		files = append(files, &c.Endpoints[i].File, &c.Endpoints[i].CA)
	}
	for _, file := range files {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(filepath.Dir(path), *file)
		}
	}
	if _, err := os.Stat(c.Overlays); asked && err != nil {
		return Config{}, fmt.Errorf("%s: overlays: %w", path, err)
	}
	return c, nil
}

// Parse reads the text of a file. A key that is not known is an error, with its
// place.
func Parse(data []byte) (Config, error) {
	c := Default()
	err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&c)
	switch {
	case errors.Is(err, io.EOF): // it says nothing
		c = Default()
	case err != nil:
		said := strings.TrimSpace(yaml.FormatError(err, false, true))
		return Config{}, errors.New(endpointURL.ReplaceAllString(said, "${1}…"))
	}
	return c, c.Check()
}

// endpointURL is the URL of an endpoint, which is a secret: an error shows the lines
// around what is wrong.
var endpointURL = regexp.MustCompile(`(wss?://)[^\s'"]*`)

// Check tells what is wrong with the config, by key.
func (c Config) Check() error {
	if err := listenable(c.Listen, len(c.Auth.Tokens) > 0); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := c.Catalog().Check(); err != nil {
		return fmt.Errorf("agents.%w", err)
	}
	if err := c.AgentsConfig().Check(); err != nil {
		return fmt.Errorf("agents.%w", err)
	}
	for i, t := range c.Auth.Tokens {
		if (t.Token == "") == (t.File == "") {
			return fmt.Errorf("auth.tokens[%d]: want a token, or a file that it stands in", i)
		}
	}
	if err := c.checkEndpoints(); err != nil {
		return err
	}
	if err := c.Serial(nil).Check(); err != nil {
		return fmt.Errorf("devices.serial: %w", err)
	}
	if err := c.TCP(nil).Check(); err != nil {
		return fmt.Errorf("devices.tcp: %w", err)
	}
	if err := c.HTTP(nil).Check(); err != nil {
		return fmt.Errorf("devices.http: %w", err)
	}
	if err := c.checkNames(); err != nil {
		return fmt.Errorf("devices: %w", err)
	}
	if err := c.DialIn.check(); err != nil {
		return fmt.Errorf("dial_in.%w", err)
	}
	if err := c.Pipeline().Check(); err != nil {
		return fmt.Errorf("calls.%w", err)
	}
	if c.Calls.Waiting < 0 {
		return fmt.Errorf("calls.waiting: want 0 or more, got %d", c.Calls.Waiting)
	}
	if err := c.Dock().Check(); err != nil {
		return err
	}
	j, err := c.JournalConfig()
	if err != nil {
		return fmt.Errorf("journal.sync: %w", err)
	}
	if err := j.Check(); err != nil {
		return fmt.Errorf("journal.%w", err)
	}
	if err := c.ClusterConfig().Check(); err != nil {
		return fmt.Errorf("cluster.%w", err)
	}
	if err := c.PollerConfig().Check(); err != nil {
		return fmt.Errorf("polling.%w", err)
	}
	if err := c.HistoryConfig().Check(); err != nil {
		return fmt.Errorf("history.%w", err)
	}
	if err := c.TelemetryConfig().Check(); err != nil {
		return fmt.Errorf("telemetry.%w", err)
	}
	return nil
}

// checkEndpoints checks the endpoints, but for URLs that stand in files.
func (c Config) checkEndpoints() error {
	names := make(map[string]bool)
	for i, e := range c.Endpoints {
		if (e.URL == "") == (e.File == "") {
			return fmt.Errorf("endpoints[%d]: want a url, or a file that it stands in", i)
		}
		if names[e.Name] {
			return fmt.Errorf("endpoints: name %q is given twice", e.Name)
		}
		names[e.Name] = true
		if e.URL == "" {
			e.URL = "wss://file" // it is read later
		}
		if err := e.config().Check(); err != nil {
			return fmt.Errorf("endpoints[%d]: %w", i, err)
		}
	}
	return nil
}

// listenable refuses an address that others could reach, unless whoever asks there
// has to show a token.
func listenable(addr string, tokens bool) error {
	if addr == "" {
		return nil // it listens nowhere
	}
	host, port, err := net.SplitHostPort(addr)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		return fmt.Errorf("want HOST:PORT, got %q", addr)
	}
	if ip := net.ParseIP(host); !tokens && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%s can be reached from other machines, and nothing there would ask who is calling: give auth.tokens, or use 127.0.0.1", addr)
	}
	return nil
}

func (c Config) checkNames() error {
	var names []string
	for _, d := range c.Devices.Serial {
		names = append(names, d.Name)
	}
	for _, d := range c.Devices.TCP {
		names = append(names, d.Name)
	}
	for _, d := range c.Devices.HTTP {
		names = append(names, d.Name)
	}
	seen := make(map[string]bool)
	for _, name := range names {
		if name == "" {
			continue
		}
		if err := ferrule.CheckID(name); err != nil {
			return err
		}
		if name == ferrule.GatewayID {
			return fmt.Errorf("name %q is the gateway's own", name)
		}
		if seen[name] {
			return fmt.Errorf("name %q is given twice", name)
		}
		seen[name] = true
	}
	return nil
}

// Serial is the config of the medium, with the dialects to try.
func (c Config) Serial(dialects []string) serial.Config {
	out := serial.DefaultConfig()
	out.Protocols = dialects
	for _, d := range c.Devices.Serial {
		out.Ports = append(out.Ports, serial.Port{Path: d.Port, Baud: d.Baud, Name: d.Name, Pending: d.Pending, Reset: serial.Reset(d.Reset)})
	}
	return out
}

// TCP is the config of the medium, with the dialects to try.
func (c Config) TCP(dialects []string) tcp.Config {
	out := tcp.DefaultConfig()
	out.Protocols = dialects
	for _, d := range c.Devices.TCP {
		out.Boards = append(out.Boards, tcp.Board(d))
	}
	return out
}

// Web is the config of the medium, with the dialects to try.
func (c Config) HTTP(dialects []string) httpclient.Config {
	out := httpclient.DefaultConfig()
	out.Protocols = dialects
	for _, d := range c.Devices.HTTP {
		if d.URL == Auto {
			out.Browse = true
			continue
		}
		out.Devices = append(out.Devices, httpclient.Device{URL: d.URL, Name: d.Name, Token: d.Token, TokenFile: d.File, Pending: d.Pending})
	}
	return out
}

// Catalog is the config of what agents see.
func (c Config) Catalog() catalog.Config { return catalog.Config{Budget: c.Agents.Budget} }

// AgentsConfig is the config of how agents are served.
func (c Config) AgentsConfig() server.Config {
	return server.Config{Sessions: c.Agents.Sessions, Idle: time.Duration(c.Agents.Idle)}
}

// Tokens reads the tokens that agents show.
func (c Config) Tokens() (*identity.Tokens, error) {
	var tokens []identity.Token
	for i, t := range c.Auth.Tokens {
		secret, err := readSecret(t.Token, t.File)
		if err != nil {
			return nil, fmt.Errorf("auth.tokens[%d].file: %w", i, err)
		}
		tokens = append(tokens, identity.Token{Name: t.Name, Secret: secret})
	}
	all, err := identity.NewTokens(tokens)
	if err != nil {
		return nil, fmt.Errorf("auth.tokens: %w", err)
	}
	return all, nil
}

// readSecret is a secret that is given, or what stands in a file if one is named.
func readSecret(secret, file string) (string, error) {
	if file == "" {
		return secret, nil
	}
	data, err := os.ReadFile(file)
	return strings.TrimSpace(string(data)), err
}

// EndpointConfigs are the configs of the endpoints, with their URLs read.
func (c Config) EndpointConfigs() ([]endpoint.Config, error) {
	var all []endpoint.Config
	for i, e := range c.Endpoints {
		url, err := readSecret(e.URL, e.File)
		if err != nil {
			return nil, fmt.Errorf("endpoints[%d].file: %w", i, err)
		}
		e.URL = url
		if err := e.config().Check(); err != nil {
			return nil, fmt.Errorf("endpoints[%d]: %w", i, err)
		}
		all = append(all, e.config())
	}
	return all, nil
}

// config is an endpoint for the room that serves it.
func (e Endpoint) config() endpoint.Config {
	return endpoint.Config{Name: e.Name, URL: e.URL, Limit: cmp.Or(e.Limit, endpoint.DefaultLimit), CA: e.CA}
}

// Pipeline is the config of the road.
func (c Config) Pipeline() pipeline.Config {
	return pipeline.Config{
		Deadline: time.Duration(c.Calls.Deadline), Cache: time.Duration(c.Calls.Cache),
		InFlight: c.Calls.InFlight, PerMinute: c.Calls.PerMinute,
	}
}

// Dock is the config of the dock.
func (c Config) Dock() dock.Config {
	out := dock.DefaultConfig()
	out.Waiting = c.Calls.Waiting
	out.RetryMin, out.RetryMax = time.Duration(c.Retry.Min), time.Duration(c.Retry.Max)
	return out
}

// JournalConfig is the config of the journal.
func (c Config) JournalConfig() (journal.Config, error) {
	out := journal.DefaultConfig()
	if c.Journal.Sync == syncAlways {
		return out, nil
	}
	d, err := time.ParseDuration(c.Journal.Sync)
	if err != nil || d <= 0 {
		return out, fmt.Errorf("want always, or an interval such as 5s, got %q", c.Journal.Sync)
	}
	out.Sync = d
	return out, nil
}

// BusConfig is the config of the engine. A node that is given no name is called
// after its machine.
func (c Config) ClusterConfig() cluster.Config {
	out := cluster.Config{
		Mode: cluster.Mode(c.Cluster.Mode), Node: c.Cluster.Node, Tenant: c.Cluster.Tenant, Servers: c.Cluster.Servers,
		Credentials: c.Cluster.Credentials, CA: c.Cluster.CA, Domain: c.Cluster.Domain,
		Shards: c.Cluster.Shards, Replicas: c.Cluster.Replicas, Store: c.Cluster.Store << 20, View: c.Cluster.View,
	}
	if out.Node == "" {
		out.Node = cluster.DefaultConfig().Node
	}
	return out
}

// ReadOverlays reads the overlays in a directory, by name. There need not be
// one.
func ReadOverlays(dir string) ([]*overlay.File, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var files []*overlay.File
	for _, e := range entries {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := ParseOverlay(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		files = append(files, file)
	}
	return files, nil
}

// ParseOverlay reads an overlay written as YAML, of which JSON is a part.
func ParseOverlay(data []byte) (*overlay.File, error) {
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, errors.New(strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	return overlay.Parse(asJSON)
}
