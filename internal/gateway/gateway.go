// Package gateway builds one node from its parts and runs it. It is the only package
// that knows all others: the parts meet here and nowhere else.
//
//	             devices                                 agents, command line
//	transport -> protocol -> dock -> fleet -> catalog -> server, endpoints, control
//	                                  ^                        |
//	                                  |                        v
//	            cluster <-> other nodes                     pipeline -> journal
//	                                  ^                        |
//	                                  +------------------------+
//
//	poller -> cluster -> history -> built-in tools
//
// New opens everything and starts nothing. Run starts the parts in order and stops them
// in reverse order. Close releases files, sockets and the lock of the data directory.
// One gateway at a time works on a data directory.
package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/endpoint"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/agent/tasks"
	"github.com/ferrulehq/ferrule/internal/cluster"
	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/console"
	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant"
	"github.com/ferrulehq/ferrule/internal/device/protocol/mcp"
	"github.com/ferrulehq/ferrule/internal/device/protocol/mcpu"
	"github.com/ferrulehq/ferrule/internal/device/protocol/xiaozhi"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
	"github.com/ferrulehq/ferrule/internal/guard/approval"
	"github.com/ferrulehq/ferrule/internal/guard/halt"
	"github.com/ferrulehq/ferrule/internal/guard/hook"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/guard/issuer"
	"github.com/ferrulehq/ferrule/internal/guard/lease"
	"github.com/ferrulehq/ferrule/internal/guard/limits"
	"github.com/ferrulehq/ferrule/internal/guard/oauth"
	"github.com/ferrulehq/ferrule/internal/guard/people"
	"github.com/ferrulehq/ferrule/internal/guard/policy"
	"github.com/ferrulehq/ferrule/internal/guard/tokens"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/lifecycle"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
	"github.com/ferrulehq/ferrule/internal/pipeline"
	"github.com/ferrulehq/ferrule/internal/watch"
)

// Parts is what a gateway is built from.
type Parts struct {
	Config  config.Config
	Data    string // data directory
	Version string
	Log     *slog.Logger
	// Connectors are transports in addition to those of the configuration.
	Connectors []transport.Connector
	// ConfigFile is the path of the configuration file, for the doctor; empty if there is
	// none.
	ConfigFile string
	// GroupSocket is the path of a socket for commands of this process's group. It is
	// empty if only this user may use the gateway.
	GroupSocket string
	// Socket is that of the only gateway that ServeStdio joins. It is empty if ServeStdio
	// joins that of the data directory, or is the gateway itself.
	Socket string
	// Load reads the configuration again, for a reload; nil if there is none.
	Load func() (config.Config, error)
	// HandOver is called when `ferrule up` asks to take over the data directory. It must
	// end the gateway. If it is nil, the gateway refuses.
	HandOver func()
}

// Gateway is one node. Its fields are its parts, in the order in which they are built;
// they are set by New.
type Gateway struct {
	parts Parts
	lock  *os.File
	boot  string // identifies this run

	reloading sync.Mutex
	running   config.Config // parts.Config with what was reloaded since; guarded by reloading

	Telemetry   *telemetry.Telemetry
	Devices     *dock.Store
	Journal     *journal.Journal
	access      *access
	overlays    *overlay.Cache
	Fleet       *fleet.Fleet
	Cluster     *cluster.Cluster
	Stop        *halt.Stop
	visibility  *visibility
	Catalog     *catalog.Catalog
	Conditions  *condition.Index
	Requests    *Requests
	DialIn      *DialIn // nil unless devices can dial in
	Dock        *dock.Dock
	Policy      policy.Holder
	History     *history.Store // nil if measurements are not recorded
	Approvals   *approval.Approvals
	Watches     *watch.Keeper
	notices     config.Watches // where watches notify; guarded by reloading
	Limits      *limits.Limits
	Leases      *lease.Keeper
	Hooks       *hook.Hooks
	registered  *registered
	Pipeline    *pipeline.Pipeline
	Poller      *poller.Poller // nil if devices are not polled
	heard       *poller.Heard
	tokens      *identity.Tokens
	Tokens      *tokens.Store
	loopback    *loopback
	issuers     []*issuer.Issuer
	People      *people.People
	OAuth       *oauth.Server // nil unless it is enabled
	taskRecords *taskRecords
	lost        *lostCalls
	Tasks       *tasks.Tasks
	Agents      *server.Server
	Calls       *audit.CallLog
	Console     *console.Console
	lastStop    atomic.Pointer[halt.Report] // the last stop that this node was told
	undecided   waitingCount
	ownAgent    ownAgent
	endpoints   []endpoint.Config
	Endpoints   []*endpoint.Endpoint
	Control     *control.Server
	certificate *certificate // nil without TLS
	web         net.Listener // nil if HTTP is not served
}

// New builds a gateway. It must be closed. The error is datadir.ErrRunning if another
// gateway has the data directory.
func New(parts Parts) (*Gateway, error) {
	g := &Gateway{parts: parts, running: parts.Config, boot: rand.Text()}
	for _, build := range []func() error{
		g.lockData,
		g.buildTelemetry,
		g.openDeviceStore,
		g.openJournal,
		g.readOverlays,
		g.buildCluster,
		g.openStop,
		g.buildCatalog,
		g.buildConditions,
		g.buildRequests,
		g.listenDialIn,
		g.buildDock,
		g.loadPolicy,
		g.openHistory,
		g.openApprovals,
		g.openAuth,
		g.openPeople,
		g.openOAuth,
		g.openWatches,
		g.buildTools,
		g.openBounds,
		g.buildHooks,
		g.buildPipeline,
		g.buildPoller,
		g.buildTasks,
		g.buildAgents,
		g.buildCalls,
		g.buildConsole,
		g.buildEndpoints,
		g.buildOffers,
		g.listenControl,
		g.storeNodeName,
		g.listenHTTP,
	} {
		if err := build(); err != nil {
			g.Close()
			return nil, err
		}
	}
	return g, nil
}

func (g *Gateway) lockData() (err error) {
	corrected, err := datadir.Prepare(g.parts.Data)
	if len(corrected) > 0 {
		g.parts.Log.Warn("other users could access the data directory or files in it; the permissions are corrected", "files", corrected[:min(len(corrected), 5)])
	}
	if err != nil {
		return err
	}
	if g.lock, err = datadir.Lock(g.parts.Data); err != nil {
		return err
	}
	return datadir.SetConfig(g.parts.Data, g.parts.ConfigFile)
}

func (g *Gateway) buildTelemetry() error {
	g.Telemetry = telemetry.New(telemetry.Parts{
		Config: g.parts.Config.TelemetryConfig(), Node: g.node(), Version: g.parts.Version, Sources: g.sources(), Log: g.parts.Log,
	})
	return nil
}

// node returns the name of this node.
func (g *Gateway) node() string { return g.parts.Config.ClusterConfig().Node }

func (g *Gateway) openDeviceStore() (err error) {
	g.Devices, err = dock.OpenStore(g.parts.Data, g.parts.Log)
	return err
}

func (g *Gateway) openJournal() error {
	cfg, err := g.parts.Config.JournalConfig()
	if err != nil {
		return err
	}
	if g.Journal, err = journal.Open(g.parts.Data, cfg, g.parts.Log); err != nil {
		return err
	}
	g.Journal.OnSync(g.Telemetry.Synced)
	g.access = newAccess(accessParts{Journal: g.Journal, Count: g.Telemetry.Accessed, Log: g.parts.Log})
	return nil
}

func (g *Gateway) readOverlays() error {
	files, err := readOverlays(g.parts.Config.Overlays)
	g.overlays = overlay.NewCache(overlay.NewSet(files...))
	return err
}

// readOverlays combines the overlays of the protocols with those of the owner.
func readOverlays(dir string) ([]*overlay.File, error) {
	var files []*overlay.File
	for name, data := range map[string][]byte{
		mcpu.Name: mcpu.Overlay, xiaozhi.Name: xiaozhi.Overlay, hass.Name: hass.Overlay,
		homeassistant.Name: homeassistant.Overlay, homeassistant.HomeName: homeassistant.HomeOverlay,
	} {
		file, err := overlay.Parse(data)
		if err != nil {
			return nil, fmt.Errorf("overlay of protocol %s: %w", name, err)
		}
		files = append(files, file)
	}
	own, err := config.ReadOverlays(dir)
	if err != nil {
		return nil, fmt.Errorf("reading overlays: %w", err)
	}
	return append(files, own...), nil
}

// buildCluster builds the fleet and its connection to other nodes: each needs the other.
func (g *Gateway) buildCluster() (err error) {
	g.Fleet = fleet.New(g.find)
	g.Cluster, err = cluster.New(cluster.Parts{
		Config: g.parts.Config.ClusterConfig(), Dir: filepath.Join(g.parts.Data, clusterDir), Fleet: g.Fleet, Overlays: g.overlays,
		Manifests: g.Devices, Journal: g.Journal, Refused: g.recordForged,
		Serve: func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			return g.Pipeline.Handle(ctx, call)
		},
		Moved:       func(id string) { g.Dock.Reconsider(id) },
		Interrupted: func() { g.Conditions.Interrupted(g.node()) },
		Meters:      g.Telemetry.Meters(), Version: g.parts.Version, Log: g.parts.Log,
	})
	if err != nil {
		return err
	}
	g.Fleet.WatchOwn(g.Cluster)
	g.registered = newRegistered(g)
	return nil
}

// recordForged records a call on NATS that no node of this tenant vouches for. All that
// is known of its caller is what it claims to be.
func (g *Gateway) recordForged(call *ferrule.Call) {
	entry := ferrule.Entry{
		Phase: ferrule.Outcome, Principal: ferrule.Principal{Role: ferrule.Unverified, Name: ferrule.Clean(call.Principal.String(), ferrule.MaxWord)},
		Call: ferrule.Clean(call.ID, ferrule.MaxWord), Device: ferrule.Clean(call.Device, ferrule.MaxWord), Tool: ferrule.Clean(call.Tool, ferrule.MaxToolName),
		Code: ferrule.Denied, Message: "a call on NATS that no node of this tenant vouches for; nothing was sent to the device",
	}
	if err := g.Journal.Append(entry, false); err != nil {
		g.parts.Log.Error("forged call not recorded", "device", entry.Device, "tool", entry.Tool, "err", err)
	}
}

// clusterDir is the directory of NATS in the data directory.
const clusterDir = "cluster"

// find looks up a device of another node that the fleet does not have.
func (g *Gateway) find(id string) (fleet.Record, bool) {
	dev, manifest, route, ok := g.Cluster.Find(id)
	return fleet.Record{Device: dev, Manifest: manifest, Handler: route}, ok
}

func (g *Gateway) buildCatalog() error {
	g.visibility = newVisibility(&g.Policy)
	g.Catalog = catalog.New(g.parts.Config.Catalog())
	g.Catalog.ShowTo(g.visibility.Of)
	g.Fleet.WatchDevices(g.Catalog)
	return nil
}

func (g *Gateway) buildRequests() error {
	g.Requests = newRequests(g.parts.Config, []string{mcpu.Name}, []string{mcp.Name}, g.parts.Log)
	g.Requests.homes.devices = g.devicesBehind
	return nil
}

func (g *Gateway) listenDialIn() (err error) {
	if g.parts.Config.DialIn.Listen == "" {
		return nil
	}
	g.DialIn, err = listenDialIn(g.parts.Config.DialIn, g.parts.Data, g.parts.Log)
	return err
}

func (g *Gateway) buildDock() error {
	connectors := append(g.Requests.connectors(), g.parts.Connectors...)
	toys := xiaozhi.Parts{Version: g.parts.Version}
	if g.DialIn != nil {
		connectors = append(connectors, g.DialIn.connectors()...)
		toys.Pictures = g.DialIn.vision
	}
	g.Dock = dock.New(dock.Parts{
		Config:     g.parts.Config.Dock(),
		Connectors: connectors,
		Protocols: map[string]protocol.Protocol{
			mcpu.Name:              mcpu.New(),
			xiaozhi.Name:           xiaozhi.New(toys),
			mcp.Name:               mcp.New(mcp.Parts{Version: g.parts.Version}),
			hass.Name:              hass.New(),
			homeassistant.Name:     homeassistant.New(),
			homeassistant.HomeName: homeassistant.HomeProtocol{},
		},
		Overlays: g.overlays,
		Fleet:    g.Fleet,
		Node:     g.node(),
		Remote:   remoteNames{g},
		Store:    g.Devices,
		OnEvent:  g.Cluster.AddDeviceEvent,
		OnReport: func(device string, at time.Time, measured []ferrule.Measurement) {
			g.heard.Report(device, at, measured)
		},
		Meters: g.Telemetry.Meters(),
		Log:    g.parts.Log,
	})
	g.Requests.settled = g.Dock.Settled
	return nil
}

// buildTools builds the gateway's own tools and offers them as those of a device.
func (g *Gateway) buildTools() error {
	tools, err := builtin.New(g.parts.Version, append(append(g.historyTools(), builtin.PeopleTools(g.People)...),
		builtin.ListDevices(listed{g}, g.visibility.Of),
		builtin.DescribeDevice(listed{g}, g.visibility.Of),
		builtin.DeviceState(g.Fleet, g.visibility.Of),
		builtin.AdoptDevice(trust{g}),
		builtin.ForgetDevice(trust{g}),
		builtin.DeviceChanges(g.Dock),
		builtin.AcceptDevice(g.Dock),
		builtin.ReleaseDevice(g.Dock),
		builtin.RetryDevice(g.Dock),
		builtin.RenameDevice(names{g}),
		builtin.LabelDevice(names{g}),
		builtin.ListApprovals(approvals{g}),
		builtin.AnswerApproval(approvals{g}),
		builtin.ApprovalStatus(approvals{g}, g.approvalsURL),
		builtin.ShowDevice(listed{g}, g.visibility.Of, g.offersOn, g.handleLater),
		builtin.ExplainPolicy(g),
		builtin.Reload(g),
		builtin.Status(g.parts.Version, g.statusFor),
		builtin.StopDevices(stopper{g}),
		builtin.ResumeDevices(stopper{g}),
		builtin.FindDevices(g.catalogFor),
		builtin.FindTools(g.catalogFor),
		builtin.DescribeTool(g.catalogFor),
		builtin.CallMany(g.handleLater),
		g.waitTool(),
		builtin.SetWatch(watches{g}),
		builtin.ListWatches(watches{g}),
		builtin.ListTokens(managed{g}),
		builtin.AddToken(managed{g}),
		builtin.RotateToken(managed{g}),
		builtin.RevokeToken(managed{g}),
	)...)
	if err != nil {
		return err
	}
	g.Fleet.PutBuiltin(tools.Device(), tools.Manifest(), g.forward(tools.Handle))
	return nil
}

func (g *Gateway) buildPipeline() error {
	g.Pipeline = pipeline.New(pipeline.Parts{
		Config: g.parts.Config.Pipeline(), Journal: g.Journal, Fleet: g.Fleet, Policy: g.Policy.Decide, Visible: g.visibility.Of,
		Approvals: g.Approvals, Hooks: g.Hooks, Stop: g.Stop, Bounds: bounds{g.Limits, g.Leases},
		Meters: g.Telemetry.Meters(), Log: g.parts.Log,
	})
	return nil
}

func (g *Gateway) buildAgents() (err error) {
	g.Agents = server.New(server.Parts{
		Config: g.parts.Config.AgentsConfig(), Catalog: g.Catalog, Handle: g.entry(telemetry.EntryAgent),
		SessionEnded: g.sessionEnded, Samples: g.Cluster, Verify: g.verifier(), Open: g.loopback.Open, Record: g.recordAccess, Version: g.parts.Version, Log: g.parts.Log,
		URL: g.parts.Config.Auth.URL, AuthServers: g.authServers, Panels: panels(), Tasks: g.Tasks,
	})
	g.Cluster.Listen(g.handleEvent, ferrule.Notified)
	g.connectWatches()
	return nil
}

// buildEndpoints builds the connections to voice agents in the cloud.
func (g *Gateway) buildEndpoints() (err error) {
	if g.endpoints, err = g.parts.Config.EndpointConfigs(); err != nil {
		return err
	}
	for _, c := range g.endpoints {
		e, err := endpoint.New(endpoint.Parts{Config: c, Server: g.Agents, Log: g.parts.Log})
		if err != nil {
			return fmt.Errorf("endpoint %s: %w", c.Name, err)
		}
		g.Endpoints = append(g.Endpoints, e)
	}
	return nil
}

// listenControl opens the socket for commands and for `ferrule mcp`.
func (g *Gateway) listenControl() error {
	socket, err := control.SocketPath(g.parts.Data)
	if err != nil {
		return err
	}
	parts := control.Parts{
		Handle: g.entry(telemetry.EntryControl), SessionEnded: g.sessionEnded, Tracer: g, Watcher: g, Samples: g.Cluster,
		Fleet: g.Fleet, Visibility: g.visibility, DeviceRequests: g.Requests, HandOver: g.handOver, Reload: g.Reload, GroupSocket: g.parts.GroupSocket, Log: g.parts.Log,
	}
	if all := g.Cluster.Journals(); all != nil {
		parts.Journals = all
	}
	g.Control, err = control.Listen(socket, parts)
	return err
}

// handOver ends the gateway, if it runs in a `ferrule mcp` process.
func (g *Gateway) handOver() error {
	if g.parts.HandOver == nil {
		return errors.New("the running gateway was started with `ferrule up`")
	}
	g.parts.HandOver()
	return nil
}

// storeNodeName stores the node's name for commands that run without the gateway.
func (g *Gateway) storeNodeName() error {
	s := g.Cluster.State()
	if s.Mode == cluster.Embedded {
		return datadir.SetNode(g.parts.Data, "")
	}
	return datadir.SetNode(g.parts.Data, s.Node)
}

// Run runs the gateway, and then parts that need it, until ctx ends or a part returns.
func (g *Gateway) Run(ctx context.Context, more ...func(context.Context) error) error {
	var parts []func(context.Context) error
	if g.Telemetry.Traces() {
		parts = append(parts, g.Telemetry.Run)
	}
	parts = append(parts, g.Cluster.Run, g.Tokens.Run)
	if g.OAuth != nil { // what is revoked until HTTP and control have ended is shared
		parts = append(parts, g.OAuth.Run)
	}
	parts = append(parts, g.Dock.Run)
	if g.shared() != nil {
		parts = append(parts, g.Limits.Run)
	}
	parts = append(parts, g.Leases.Run, g.Requests.Run, g.Approvals.Run, g.runTasks, g.Watches.Run, g.Agents.Run, g.Control.Run, g.Calls.Run, g.registered.Run)
	for _, e := range g.Endpoints {
		parts = append(parts, e.Run)
	}
	parts = append(parts, func(ctx context.Context) error {
		g.visibility.follow(ctx, g.visibility.Changed(), g.Agents.PolicyChanged)
		return nil
	})
	if g.History != nil {
		parts = append(parts, func(ctx context.Context) error { return g.History.Run(ctx, g.Cluster) })
	}
	parts = append(parts, g.Conditions.Run, g.heard.Run)
	if g.Poller != nil {
		parts = append(parts, g.Poller.Run)
	}
	if g.web != nil {
		parts = append(parts, g.serveHTTP)
	}
	if g.DialIn != nil {
		parts = append(parts, g.DialIn.Run)
	}
	g.warnNoTokens()
	g.warnTokens()
	if len(g.certificates()) > 0 {
		parts = append(parts, g.keepCertificates)
	}
	return lifecycle.Run(ctx, append(parts, more...)...)
}

// Close releases what New opened, in reverse order.
func (g *Gateway) Close() error {
	var errs []error
	if g.web != nil {
		g.web.Close()
	}
	if g.Console != nil {
		g.undecided.stop()
		g.Console.Close()
	}
	if g.Control != nil {
		g.Control.Close()
	}
	if g.DialIn != nil {
		errs = append(errs, g.DialIn.close())
	}
	if g.History != nil {
		errs = append(errs, g.History.Close())
	}
	if g.Leases != nil {
		errs = append(errs, g.Leases.Close())
	}
	if g.Limits != nil {
		errs = append(errs, g.Limits.Close())
	}
	if g.Stop != nil {
		errs = append(errs, g.Stop.Close())
	}
	if g.OAuth != nil {
		errs = append(errs, g.OAuth.Close())
	}
	if g.People != nil {
		errs = append(errs, g.People.Close())
	}
	if g.Tokens != nil {
		errs = append(errs, g.Tokens.Close())
	}
	if g.Watches != nil {
		errs = append(errs, g.Watches.Close())
	}
	if g.Approvals != nil {
		errs = append(errs, g.Approvals.Close())
	}
	if g.Hooks != nil {
		g.Hooks.Close()
	}
	if g.Pipeline != nil {
		g.Pipeline.Flush()
	}
	if g.access != nil {
		g.access.close()
	}
	if g.Journal != nil {
		errs = append(errs, g.Journal.Close())
	}
	if g.Devices != nil {
		errs = append(errs, g.Devices.Close())
	}
	if g.lock != nil {
		errs = append(errs, g.lock.Close())
	}
	return errors.Join(errs...)
}
