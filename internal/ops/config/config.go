// Package config reads ferrule.yaml and the overlay files. The file is decoded strictly,
// filled with defaults, checked, and turned into the Config of each package.
//
//	ferrule.yaml ─▶ Config ─▶ serial.Config, tcp.Config, pipeline.Config, journal.Config, …
//	overlays/*   ─▶ []*overlay.File
//	policies/*   ─▶ policy.Policy, by the gateway
package config

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/cluster"
	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/approval"
	"github.com/ferrulehq/ferrule/internal/guard/policy"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// Sample is the commented sample file, with every key at its default.
//
//go:embed ferrule.yaml
var Sample []byte

// Config is the content of the file.
type Config struct {
	// Listen is the address of the HTTP server.
	Listen string `yaml:"listen"`
	// TLS is the certificate of the HTTP server; empty for HTTP without TLS.
	TLS TLS `yaml:"tls"`
	// Overlays is the directory of overlays.
	Overlays  string     `yaml:"overlays"`
	Devices   Devices    `yaml:"devices"`
	Plugins   []Plugin   `yaml:"plugins"`
	DialIn    DialIn     `yaml:"dial_in"`
	Agents    Agents     `yaml:"agents"`
	Auth      Auth       `yaml:"auth"`
	Policy    Policy     `yaml:"policy"`
	Endpoints []Endpoint `yaml:"endpoints"`
	Calls     Calls      `yaml:"calls"`
	Hooks     []Hook     `yaml:"hooks"`
	Approvals Approvals  `yaml:"approvals"`
	Watches   Watches    `yaml:"watches"`
	Retry     Retry      `yaml:"retry"`
	Journal   Journal    `yaml:"journal"`
	Cluster   Cluster    `yaml:"cluster"`
	Polling   Polling    `yaml:"polling"`
	History   History    `yaml:"history"`
	Telemetry Telemetry  `yaml:"telemetry"`
}

// TLS names the files of a certificate.
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

func (t TLS) check() error {
	if (t.Cert == "") != (t.Key == "") {
		return errors.New("tls: must have both cert and key, or neither")
	}
	return nil
}

// Devices are the devices to connect to.
type Devices struct {
	Serial []SerialDevice `yaml:"serial"`
	TCP    []TCPDevice    `yaml:"tcp"`
	HTTP   []HTTPDevice   `yaml:"http"`
	MQTT   []Broker       `yaml:"mqtt"`
	// HomeAssistant are the Home Assistants.
	HomeAssistant []Home `yaml:"homeassistant"`
	// PinUSB reports whether changes of boards on serial ports wait for the owner.
	PinUSB bool `yaml:"pin_usb"`
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
	// URL may be Auto.
	URL  string `yaml:"url"`
	Name string `yaml:"name"`
	// Token is sent to the device; File names a file with it.
	Token   ferrule.Secret `yaml:"token"`
	File    string         `yaml:"file"`
	Pending bool           `yaml:"pending"`
}

// Auto as a URL stands for all devices announced by mDNS.
const Auto = "auto"

// DialIn configures the listeners for devices that connect to the gateway.
type DialIn struct {
	// Listen is the address for HTTP and WebSocket; empty for none.
	Listen string `yaml:"listen"`
	// URL is how devices reach Listen.
	URL string `yaml:"url"`
	// MQTT is the address for MQTT, or off. MQTTAddress is how devices reach it.
	MQTT        string `yaml:"mqtt"`
	MQTTAddress string `yaml:"mqtt_address"`
	// TLS is the certificate of both listeners; empty for none.
	TLS        TLS  `yaml:"tls"`
	Activation bool `yaml:"activation"`
	Devices    int  `yaml:"devices"`
	PerHost    int  `yaml:"per_host"`
}

// mqttOff as DialIn.MQTT disables MQTT.
const mqttOff = "off"

// Agents configures what agents see and how they are served.
type Agents struct {
	Budget           int      `yaml:"budget"`
	Sessions         int      `yaml:"sessions"`
	SessionsPerAgent int      `yaml:"sessions_per_agent"`
	Connections      int      `yaml:"connections"`
	Idle             Interval `yaml:"idle"`
	// Hosts are names under which a reverse proxy serves the gateway.
	Hosts []string `yaml:"hosts"`
	// OpenLoopback lets programs on this machine in without a token.
	OpenLoopback bool `yaml:"open_loopback"`
	// ServerCard announces the gateway to everybody who asks. It is experimental.
	ServerCard bool `yaml:"server_card"`
}

// Endpoint is an MCP endpoint of a voice service.
type Endpoint struct {
	Name string `yaml:"name"`
	// URL contains a token; File names a file with it.
	URL   ferrule.Secret `yaml:"url"`
	File  string         `yaml:"file"`
	Limit int            `yaml:"limit"`
	CA    string         `yaml:"ca"`
}

// Calls configures limits of calls.
type Calls struct {
	// CleanResults removes from results what a reader does not see.
	CleanResults bool `yaml:"clean_results"`

	Deadline  Interval `yaml:"deadline"`
	Waiting   int      `yaml:"waiting"`
	Cache     Interval `yaml:"cache"`
	InFlight  int      `yaml:"in_flight"`
	PerMinute int      `yaml:"per_minute"`
	Refused   int      `yaml:"refused_per_minute"`
}

// Approvals configures how people are asked about calls.
type Approvals struct {
	Wait Interval `yaml:"wait"`
	Keep Interval `yaml:"keep"`
	// AskAgentsUser lists agents whose own user may approve their calls.
	AskAgentsUser []string `yaml:"ask_agents_user"`
	Webhook       Webhook  `yaml:"webhook"`
}

// Webhook is a URL that is told about calls that wait for approval.
type Webhook struct {
	URL ferrule.Secret `yaml:"url"`
	// Secret signs what is sent; SecretFile names a file with it.
	Secret     ferrule.Secret `yaml:"secret"`
	SecretFile string         `yaml:"secret_file"`
	// Link is how people reach this gateway.
	Link string `yaml:"link"`
}

// Retry configures reconnects.
type Retry struct {
	Min   Interval `yaml:"min"`
	Max   Interval `yaml:"max"`
	Grace Interval `yaml:"grace"`
	Wait  Interval `yaml:"wait"`
}

// Interval is a duration in the file, such as 30s.
type Interval time.Duration

// UnmarshalYAML reads a duration. Its error names the key.
func (i *Interval) UnmarshalYAML(node ast.Node) error {
	d, err := ferrule.ParseDuration(node.GetToken().Value)
	if err != nil {
		return fmt.Errorf("%s: %w", strings.TrimPrefix(node.GetPath(), "$."), err)
	}
	*i = Interval(d)
	return nil
}

// String returns the duration as in the file.
func (i Interval) String() string { return time.Duration(i).String() }

// Journal configures the journal.
type Journal struct {
	// Sync is always or an interval.
	Sync string `yaml:"sync"`
	// SegmentSize is in MiB.
	SegmentSize int64    `yaml:"segment_size"`
	SegmentAge  Interval `yaml:"segment_age"`
}

// syncAlways as Journal.Sync waits for the disk before each change.
const syncAlways = "always"

// Cluster configures the connection to other nodes.
type Cluster struct {
	Mode        string   `yaml:"mode"`
	Node        string   `yaml:"node"`
	Tenant      string   `yaml:"tenant"`
	Servers     []string `yaml:"servers"`
	Credentials string   `yaml:"credentials"`
	CA          string   `yaml:"ca"`
	Secret      string   `yaml:"secret"`
	Domain      string   `yaml:"domain"`
	Shards      int      `yaml:"shards"`
	Replicas    int      `yaml:"replicas"`
	// Store is in MiB.
	Store int64 `yaml:"store"`
	View  int   `yaml:"view"`
}

// Default returns the config of an empty file.
func Default() Config {
	d, p, a, b, s, h := dock.DefaultConfig(), pipeline.DefaultConfig(), server.DefaultConfig(), cluster.DefaultConfig(), poller.DefaultConfig(), history.DefaultConfig()
	o, j, rules, ask := telemetry.DefaultConfig(), journal.DefaultConfig(), policy.DefaultConfig(), approval.DefaultConfig()
	return Config{
		Listen:   "127.0.0.1:3377",
		Overlays: "overlays",
		Calls: Calls{
			Deadline: Interval(p.Deadline), Waiting: d.Waiting,
			Cache: Interval(p.Cache), InFlight: p.InFlight, PerMinute: p.PerMinute, Refused: p.RefusedPerMinute,
		},
		Approvals: Approvals{Wait: Interval(ask.Wait), Keep: Interval(ask.Keep), AskAgentsUser: []string{}},
		DialIn:    DialIn{Devices: inbound.DefaultConfig().Max, PerHost: inbound.DefaultConfig().PerHost},
		Agents:    Agents{Budget: catalog.DefaultConfig().Budget, Sessions: a.Sessions, SessionsPerAgent: a.SessionsPerAgent, Connections: a.Connections, Idle: Interval(a.Idle), Hosts: []string{}},
		Auth:      Auth{Server: AuthServer{Register: true, Documents: true, Clients: []AuthClient{}}, Issuers: []Issuer{}},
		Policy:    Policy{Preset: rules.Preset, Agents: map[string]string{}, Groups: map[string][]string{}, Dir: rules.Dir},
		Endpoints: []Endpoint{},
		Plugins:   []Plugin{},
		Hooks:     []Hook{},
		Retry:     Retry{Min: Interval(d.RetryMin), Max: Interval(d.RetryMax), Grace: Interval(d.Grace), Wait: Interval(d.Wait)},
		Journal:   Journal{Sync: syncAlways, SegmentSize: j.SegmentSize >> 20, SegmentAge: Interval(j.SegmentAge)},
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

// Load reads the file at path. Relative paths in it are relative to its directory.
func Load(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	c, err := Parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	named, rules := c.Overlays != Default().Overlays, c.Policy.Dir != "" && c.Policy.Dir != Default().Policy.Dir
	if !filepath.IsAbs(c.Overlays) {
		c.Overlays = filepath.Join(filepath.Dir(path), c.Overlays)
	}
	files := []*string{&c.Policy.Dir, &c.Cluster.Credentials, &c.Cluster.CA, &c.Cluster.Secret, &c.TLS.Cert, &c.TLS.Key, &c.DialIn.TLS.Cert, &c.DialIn.TLS.Key, &c.Approvals.Webhook.SecretFile}
	for i := range c.Auth.Tokens {
		files = append(files, &c.Auth.Tokens[i].File)
	}
	for i := range c.Auth.Issuers {
		files = append(files, &c.Auth.Issuers[i].CA, &c.Auth.Issuers[i].ClientSecretFile)
	}
	for i := range c.Auth.Server.Clients {
		files = append(files, &c.Auth.Server.Clients[i].SecretFile)
	}
	for i := range c.Endpoints {
		files = append(files, &c.Endpoints[i].File, &c.Endpoints[i].CA)
	}
	for i := range c.Devices.HTTP {
		files = append(files, &c.Devices.HTTP[i].File)
	}
	for i := range c.Devices.MQTT {
		b := &c.Devices.MQTT[i]
		files = append(files, &b.PasswordFile, &b.CA, &b.Cert, &b.Key)
	}
	for i := range c.Devices.HomeAssistant {
		files = append(files, &c.Devices.HomeAssistant[i].File, &c.Devices.HomeAssistant[i].CA)
	}
	files = append(files, c.programFiles()...)
	for _, file := range files {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(filepath.Dir(path), *file)
		}
	}
	if err := c.checkWritable(path); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := os.Stat(c.Overlays); named && err != nil {
		return Config{}, fmt.Errorf("%s: overlays: %w", path, err)
	}
	if _, err := os.Stat(c.Policy.Dir); rules && err != nil {
		return Config{}, fmt.Errorf("%s: policy.dir: %w", path, err)
	}
	return c, nil
}

// Parse decodes and checks a file. Errors have the line.
func Parse(data []byte) (Config, error) {
	c := Default()
	err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&c)
	switch {
	case errors.Is(err, io.EOF): // an empty file
		c = Default()
	case err != nil:
		return Config{}, explain(err, data, c)
	}
	if err := c.Check(); err != nil {
		return c, explain(err, data, c)
	}
	return c, nil
}

// Check returns the first problem of the config, starting with the key. The error does
// not contain secrets.
func (c Config) Check() error { return ferrule.MaskError(c.check()) }

func (c Config) check() error {
	if err := checkListen(c.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := c.TLS.check(); err != nil {
		return err
	}
	if err := c.checkOpenLoopback(); err != nil {
		return fmt.Errorf("agents.open_loopback: %w", err)
	}
	if err := c.checkServerCard(); err != nil {
		return fmt.Errorf("agents.server_card: %w", err)
	}
	if err := c.Catalog().Check(); err != nil {
		return fmt.Errorf("agents.%w", err)
	}
	if err := c.AgentsConfig().Check(); err != nil {
		return fmt.Errorf("agents.%w", err)
	}
	for i, t := range c.Auth.Tokens {
		if (t.Token == "") == (t.File == "") {
			return fmt.Errorf("auth.tokens[%d]: must have either token or file", i)
		}
		if _, _, err := t.limits(); err != nil {
			return fmt.Errorf("auth.tokens[%d].%w", i, err)
		}
	}
	if err := c.checkIssuers(); err != nil {
		return err
	}
	if err := c.checkAuthServer(); err != nil {
		return err
	}
	if err := c.PolicyConfig().Check(); err != nil {
		return fmt.Errorf("policy.%w", err)
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
	if err := c.checkBrokers(); err != nil {
		return err
	}
	if err := c.checkHomes(); err != nil {
		return err
	}
	if err := c.checkNames(); err != nil {
		return fmt.Errorf("devices: %w", err)
	}
	if err := c.checkPlugins(); err != nil {
		return err
	}
	if err := c.checkHooks(); err != nil {
		return err
	}
	if err := c.DialIn.check(); err != nil {
		return fmt.Errorf("dial_in.%w", err)
	}
	if err := c.Pipeline().Check(); err != nil {
		return fmt.Errorf("calls.%w", err)
	}
	if err := c.checkApprovals(); err != nil {
		return fmt.Errorf("approvals.%w", err)
	}
	if err := c.checkWatches(); err != nil {
		return err
	}
	if c.Calls.Waiting < 0 {
		return fmt.Errorf("calls.waiting: must be at least 0, got %d", c.Calls.Waiting)
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

// checkEndpoints checks the endpoints, except for URLs in files.
func (c Config) checkEndpoints() error {
	names := make(map[string]bool)
	for i, e := range c.Endpoints {
		if (e.URL == "") == (e.File == "") {
			return fmt.Errorf("endpoints[%d]: must have either url or file", i)
		}
		if names[e.Name] {
			return fmt.Errorf("endpoints: duplicate name %q", e.Name)
		}
		names[e.Name] = true
		if e.URL == "" {
			e.URL = "wss://file" // read later
		}
		if err := e.config().Check(); err != nil {
			return fmt.Errorf("endpoints[%d]: %w", i, err)
		}
	}
	return nil
}

func checkListen(addr string) error {
	if addr == "" {
		return nil // no HTTP server
	}
	_, port, err := net.SplitHostPort(addr)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		return fmt.Errorf("must be HOST:PORT, got %q", ferrule.MaskURL(addr))
	}
	return nil
}

// checkOpenLoopback returns an error if other machines could call without a token: a proxy
// passes their calls on as if they came from this one.
func (c Config) checkOpenLoopback() error {
	if !c.Agents.OpenLoopback {
		return nil
	}
	host, _, _ := net.SplitHostPort(c.Listen)
	ip := net.ParseIP(host)
	switch {
	case c.Listen != "" && host != "localhost" && (ip == nil || !ip.IsLoopback()):
		return fmt.Errorf("other machines reach %s; set it to false, or use 127.0.0.1 in listen", c.Listen)
	case len(c.Agents.Hosts) > 0:
		return errors.New("other machines reach the gateway under the names in agents.hosts; set it to false, or remove agents.hosts")
	}
	if u, err := url.Parse(c.Auth.URL); c.Auth.URL != "" && (err != nil || !isLoopback(u.Hostname())) {
		return fmt.Errorf("other machines reach the gateway at auth.url, %s; set it to false, or remove auth.url", ferrule.MaskURL(c.Auth.URL))
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
	for _, h := range c.Homes() {
		names = append(names, h.Name)
	}
	for _, p := range c.Plugins {
		names = append(names, p.Name)
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
			return fmt.Errorf("name %q is reserved for the gateway", name)
		}
		if seen[name] {
			return fmt.Errorf("duplicate name %q", name)
		}
		seen[name] = true
	}
	return nil
}

// ReadOverlays reads the overlays in a directory, in the order of file names. The
// directory need not exist.
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

// ParseOverlay reads an overlay in YAML or JSON.
func ParseOverlay(data []byte) (*overlay.File, error) {
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, explain(err, data, overlay.File{})
	}
	file, err := overlay.Parse(asJSON)
	if err != nil {
		return nil, explain(err, data, overlay.File{})
	}
	return file, nil
}
