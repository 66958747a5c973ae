package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/endpoint"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/cluster"
	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
	"github.com/ferrulehq/ferrule/internal/device/transport/serial"
	"github.com/ferrulehq/ferrule/internal/device/transport/tcp"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/approval"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// Serial returns the config of the serial transport, with the protocols to try.
func (c Config) Serial(protocols []string) serial.Config {
	out := serial.DefaultConfig()
	out.Protocols = protocols
	for _, d := range c.Devices.Serial {
		out.Ports = append(out.Ports, serial.Port{Path: d.Port, Baud: d.Baud, Name: d.Name, Pending: d.Pending, Reset: serial.Reset(d.Reset)})
	}
	return out
}

// TCP returns the config of the TCP transport, with the protocols to try.
func (c Config) TCP(protocols []string) tcp.Config {
	out := tcp.DefaultConfig()
	out.Protocols = protocols
	for _, d := range c.Devices.TCP {
		out.Boards = append(out.Boards, tcp.Board(d))
	}
	return out
}

// HTTP returns the config of the HTTP client transport, with the protocols to try.
func (c Config) HTTP(protocols []string) httpclient.Config {
	out := httpclient.DefaultConfig()
	out.Protocols = protocols
	for _, d := range c.Devices.HTTP {
		if d.URL == Auto {
			out.Browse = true
			continue
		}
		out.Devices = append(out.Devices, httpclient.Device{URL: d.URL, Name: d.Name, Token: d.Token.Reveal(), TokenFile: d.File, Pending: d.Pending})
	}
	return out
}

// Catalog returns the config of the catalog.
func (c Config) Catalog() catalog.Config {
	return catalog.Config{Budget: c.Agents.Budget, Grace: time.Duration(c.Retry.Grace)}
}

// AgentsConfig returns the config of the agent server.
func (c Config) AgentsConfig() server.Config {
	return server.Config{
		Sessions: c.Agents.Sessions, SessionsPerAgent: c.Agents.SessionsPerAgent, Connections: c.Agents.Connections, Idle: time.Duration(c.Agents.Idle), Hosts: c.Agents.Hosts,
	}
}

// Tokens returns the tokens of agents, read from their files where necessary.
func (c Config) Tokens() (*identity.Tokens, error) {
	var tokens []identity.Token
	for i, t := range c.Auth.Tokens {
		secret, err := readSecret(t.Token, t.File)
		if err != nil {
			return nil, fmt.Errorf("auth.tokens[%d].file: %w", i, err)
		}
		scopes, devices, err := t.limits()
		if err != nil {
			return nil, fmt.Errorf("auth.tokens[%d].%w", i, err)
		}
		tokens = append(tokens, identity.Token{Name: t.Name, Secret: secret, Scopes: scopes, Devices: devices})
	}
	all, err := identity.NewTokens(tokens)
	if err != nil {
		return nil, fmt.Errorf("auth.tokens: %w", err)
	}
	return all, nil
}

// readSecret returns secret, or the content of a file if one is named.
func readSecret(secret ferrule.Secret, file string) (ferrule.Secret, error) {
	if file == "" {
		return secret, nil
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) { // the name may be the secret, by mistake
		err = errors.New("the file does not exist; it must be the name of a file that has the secret")
	}
	return ferrule.Secret(strings.TrimSpace(string(data))), err
}

// EndpointConfigs returns the configs of the endpoints, with URLs read from files.
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

func (e Endpoint) config() endpoint.Config {
	return endpoint.Config{Name: e.Name, URL: e.URL, Limit: cmp.Or(e.Limit, endpoint.DefaultLimit), CA: e.CA}
}

// Pipeline returns the config of the pipeline.
func (c Config) Pipeline() pipeline.Config {
	return pipeline.Config{
		CleanResults: c.Calls.CleanResults, ApprovalWait: time.Duration(c.Approvals.Wait),

		Deadline: time.Duration(c.Calls.Deadline), Cache: time.Duration(c.Calls.Cache),
		InFlight: c.Calls.InFlight, PerMinute: c.Calls.PerMinute, RefusedPerMinute: c.Calls.Refused,
	}
}

// ApprovalConfig returns the config of approvals, with the secret of the webhook read from
// its file where necessary.
func (c Config) ApprovalConfig() (approval.Config, error) {
	out := c.Approvals.config()
	secret, err := readSecret(c.Approvals.Webhook.Secret, c.Approvals.Webhook.SecretFile)
	if err != nil {
		return out, fmt.Errorf("approvals.webhook.secret_file: %w", err)
	}
	out.Webhook.Secret = secret
	if err := out.Check(); err != nil {
		return out, fmt.Errorf("approvals.%w", err)
	}
	return out, nil
}

func (a Approvals) config() approval.Config {
	out := approval.DefaultConfig()
	out.Wait, out.Keep, out.AskAgentsUser = time.Duration(a.Wait), time.Duration(a.Keep), a.AskAgentsUser
	out.Webhook = approval.Webhook{URL: a.Webhook.URL, Secret: a.Webhook.Secret, Link: a.Webhook.Link}
	return out
}

// checkApprovals checks the config of approvals, except for a secret in a file.
func (c Config) checkApprovals() error {
	out := c.Approvals.config()
	if file := c.Approvals.Webhook.SecretFile; file != "" {
		if out.Webhook.Secret != "" {
			return errors.New("webhook: must have either secret or secret_file")
		}
		out.Webhook.Secret = "a secret that is read later"
	}
	return out.Check()
}

// Dock returns the config of the dock.
func (c Config) Dock() dock.Config {
	out := dock.DefaultConfig()
	out.Waiting = c.Calls.Waiting
	out.PinUSB = c.Devices.PinUSB
	out.RetryMin, out.RetryMax = time.Duration(c.Retry.Min), time.Duration(c.Retry.Max)
	out.Grace, out.Wait = time.Duration(c.Retry.Grace), time.Duration(c.Retry.Wait)
	return out
}

// JournalConfig returns the config of the journal.
func (c Config) JournalConfig() (journal.Config, error) {
	out := journal.DefaultConfig()
	out.SegmentSize, out.SegmentAge = c.Journal.SegmentSize<<20, time.Duration(c.Journal.SegmentAge)
	if c.Journal.Sync == syncAlways {
		return out, nil
	}
	d, err := ferrule.ParseDuration(c.Journal.Sync)
	if err != nil || d <= 0 {
		return out, fmt.Errorf("must be always or an interval such as 5s, got %q", c.Journal.Sync)
	}
	out.Sync = d
	return out, nil
}

// ClusterConfig returns the config of the cluster. The default node name is the host
// name.
func (c Config) ClusterConfig() cluster.Config {
	out := cluster.Config{
		Mode: cluster.Mode(c.Cluster.Mode), Node: c.Cluster.Node, Tenant: c.Cluster.Tenant, Servers: c.Cluster.Servers,
		Credentials: c.Cluster.Credentials, CA: c.Cluster.CA, Secret: c.Cluster.Secret, Domain: c.Cluster.Domain,
		Shards: c.Cluster.Shards, Replicas: c.Cluster.Replicas, Store: c.Cluster.Store << 20, View: c.Cluster.View,
	}
	if out.Node == "" {
		out.Node = cluster.DefaultConfig().Node
	}
	return out
}
