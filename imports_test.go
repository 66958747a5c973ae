package ferrule_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/ferrulehq/ferrule"

// importRule lists what a package may import, in addition to the standard library.
type importRule struct {
	// own lists packages of this module.
	own []string
	// third lists third-party modules by path prefix.
	third []string
	// tests lists what only its tests may import, of either sort.
	tests []string
}

// testTools may be used by the tests of every package.
var testTools = []string{"internal/testenv/wait", "internal/testenv/figure", "golang.org/x/tools/txtar", "github.com/rogpeppe/go-internal"}

// example is the rule for example programs.
var example = importRule{own: []string{"thing", "thing/mcpserver"}, tests: []string{"github.com/modelcontextprotocol/go-sdk"}}

// importRules is the layout of the module. Siblings do not import each other: a
// consumer declares the interface that it needs, and the gateway connects the parts.
var importRules = map[string]importRule{
	".":                         {},
	"internal/ferrule":          {},
	"internal/ratelimit":        {},
	"internal/strictjson":       {},
	"internal/device/transport": {own: []string{"internal/ratelimit"}},
	"internal/device/transport/tcp": {
		own:   []string{"internal/device/transport"},
		tests: []string{"internal/device/transport/transporttest"},
	},
	"internal/program": {},
	"internal/device/transport/plugin": {
		own:   []string{"internal/device/transport", "internal/program", "internal/ratelimit"},
		tests: []string{"internal/device/transport/transporttest"},
	},
	"internal/device/transport/serial": {
		own:   []string{"internal/device/transport", "internal/permission"},
		third: []string{"go.bug.st/serial", "golang.org/x/sys"},
		tests: []string{"internal/testenv/uno", "internal/device/transport/transporttest"},
	},
	"internal/device/transport/inbound": {own: []string{"internal/device/transport", "internal/ratelimit"}},
	"internal/device/transport/mqtt": {
		own:   []string{"internal/device/transport", "internal/device/transport/inbound"},
		third: []string{"github.com/mochi-mqtt/server/v2"},
		tests: []string{"internal/device/transport/transporttest"},
	},
	"internal/device/transport/mdns": {},
	"internal/mqttclient/mcptopics":  {own: []string{"internal/ferrule", "internal/mqttclient", "internal/strictjson"}},
	"internal/mqttclient": {
		own:   []string{"internal/ferrule"},
		third: []string{"github.com/eclipse/paho.golang", "github.com/eclipse/paho.mqtt.golang"},
		tests: []string{"internal/testenv/mosquitto", "internal/ops/localca"},
	},
	"internal/device/transport/mcpmqtt": {
		own:   []string{"internal/ferrule", "internal/device/transport", "internal/mqttclient", "internal/mqttclient/mcptopics"},
		tests: []string{"internal/device/transport/transporttest", "internal/device/protocol/mcp", "internal/testenv/mosquitto"},
	},
	"internal/device/transport/httpclient": {
		own:   []string{"internal/device/transport", "internal/device/transport/mdns", "internal/ratelimit"},
		third: []string{"golang.org/x/net"},
		tests: []string{"internal/testenv/lan", "internal/device/transport/websocket", "github.com/gobwas/ws"},
	},
	"internal/device/transport/websocket": {
		own:   []string{"internal/device/transport", "internal/device/transport/inbound"},
		third: []string{"github.com/gobwas/ws"},
		tests: []string{"internal/device/transport/transporttest"},
	},
	"internal/device/transport/transporttest": {own: []string{"internal/device/transport", "internal/testenv/figure", "internal/testenv/wait"}},
	"internal/device/protocol":                {own: []string{"internal/ferrule", "internal/device/transport"}},
	"internal/device/protocol/jsonrpc":        {own: []string{"internal/ferrule", "internal/strictjson"}},
	"internal/device/protocol/content":        {own: []string{"internal/ferrule"}},
	"internal/device/protocol/mcpu": {
		own:   []string{"internal/ferrule", "internal/device/transport", "internal/device/protocol", "internal/device/protocol/jsonrpc", "internal/strictjson"},
		tests: []string{"internal/device/transport/transporttest", "internal/device/protocol/protocoltest", "internal/device/overlay", "internal/schema", "thing"},
	},
	"internal/device/protocol/xiaozhi": {
		own:   []string{"internal/ferrule", "internal/device/transport", "internal/device/protocol", "internal/device/protocol/jsonrpc", "internal/device/protocol/content", "internal/ratelimit"},
		tests: []string{"internal/device/transport/transporttest", "internal/device/protocol/protocoltest", "internal/device/overlay", "internal/schema", "internal/sim", "thing", "thing/xiaozhi"},
	},
	"internal/device/protocol/xiaozhi/provision": {
		own:   []string{"internal/ferrule", "internal/device/transport"},
		tests: []string{"internal/device/protocol/xiaozhi", "internal/sim", "thing/xiaozhi"},
	},
	"internal/device/protocol/mcp": {
		own: []string{"internal/ferrule", "internal/device/transport", "internal/device/protocol", "internal/device/protocol/jsonrpc", "internal/device/protocol/content", "internal/ratelimit"},
		tests: []string{
			"internal/device/protocol/protocoltest", "internal/device/dock", "internal/fleet", "internal/journal", "internal/device/overlay", "internal/pipeline", "internal/schema", "internal/sim", "thing", "thing/mcpserver", "internal/device/transport/httpclient", "internal/device/transport/transporttest", "internal/device/transport/websocket",
			"github.com/modelcontextprotocol/go-sdk",
		},
	},
	"internal/device/protocol/hass": {
		own: []string{
			"internal/ferrule", "internal/device/transport", "internal/mqttclient", "internal/device/protocol", "internal/ratelimit",
			"internal/device/protocol/hass/discovery", "internal/device/protocol/hass/entity", "internal/device/protocol/hass/tasmota", "internal/device/protocol/hass/template",
		},
		tests: []string{"internal/testenv/mosquitto", "internal/testenv/zigbee", "internal/device/dock/docktest", "internal/device/protocol/protocoltest", "internal/device/transport/transporttest", "internal/device/overlay", "internal/schema"},
	},
	"internal/device/protocol/homeassistant": {
		own: []string{
			"internal/ferrule", "internal/schema", "internal/strictjson", "internal/device/protocol", "internal/device/transport",
			"internal/device/protocol/homeassistant/api", "internal/device/protocol/homeassistant/confirm", "internal/device/protocol/homeassistant/describe", "internal/device/protocol/homeassistant/home",
			"internal/ratelimit",
		},
		tests: []string{"internal/testenv/homeassistant", "internal/testenv/homeassistant/fake", "internal/device/dock/docktest", "internal/device/protocol/protocoltest", "internal/device/transport/transporttest", "internal/device/overlay", "internal/schema"},
	},
	"internal/device/protocol/homeassistant/api": {
		own:   []string{"internal/ferrule", "internal/strictjson", "internal/device/transport", "internal/device/transport/inbound", "internal/device/transport/websocket"},
		tests: []string{"internal/testenv/homeassistant", "internal/testenv/homeassistant/fake"},
	},
	"internal/device/protocol/homeassistant/confirm": {own: []string{"internal/ferrule", "internal/device/protocol/homeassistant/home"}},
	"internal/device/protocol/homeassistant/describe": {
		own:   []string{"internal/ferrule", "internal/strictjson", "internal/device/protocol/homeassistant/home"},
		tests: []string{"internal/schema", "internal/device/overlay", "internal/testenv/homeassistant", "internal/device/protocol/homeassistant/api"},
	},
	"internal/device/protocol/homeassistant/home": {
		own:   []string{"internal/ferrule", "internal/strictjson", "internal/device/protocol/homeassistant/api"},
		tests: []string{"internal/testenv/homeassistant"},
	},
	"internal/testenv/homeassistant":          {},
	"internal/testenv/homeassistant/fake":     {third: []string{"github.com/gobwas/ws"}},
	"internal/device/protocol/hass/discovery": {own: []string{"internal/ferrule", "internal/strictjson"}, tests: []string{"internal/testenv/zigbee"}},
	"internal/device/protocol/hass/entity": {
		own:   []string{"internal/ferrule", "internal/strictjson", "internal/device/protocol/hass/discovery", "internal/device/protocol/hass/template"},
		tests: []string{"internal/testenv/zigbee", "internal/schema", "internal/device/overlay"},
	},
	"internal/device/protocol/hass/tasmota": {
		own:   []string{"internal/strictjson"},
		tests: []string{"internal/device/protocol/hass/discovery", "internal/device/protocol/hass/entity"},
	},
	"internal/device/protocol/hass/template": {tests: []string{"internal/testenv/zigbee"}},
	"internal/device/protocol/protocoltest":  {own: []string{"internal/ferrule", "internal/device/transport", "internal/device/protocol", "internal/device/transport/transporttest"}},
	"internal/device/dock": {
		own:   []string{"internal/ferrule", "internal/device/transport", "internal/device/protocol", "internal/guard/pinning"},
		tests: []string{"internal/fleet", "internal/device/overlay", "internal/pipeline", "internal/device/transport/transporttest"},
	},
	"internal/device/dock/docktest": {
		own: []string{"internal/ferrule", "internal/device/transport", "internal/device/protocol", "internal/device/dock"},
	},
	"internal/device/overlay": {own: []string{"internal/ferrule", "internal/schema"}},
	"internal/fleet":          {own: []string{"internal/ferrule"}},
	"internal/condition":      {own: []string{"internal/ferrule"}},
	"internal/histogram":      {},
	"internal/measure/poller": {own: []string{"internal/ferrule", "internal/histogram", "internal/measure/ring"}, tests: []string{"internal/device/protocol/mcpu", "internal/measure/history"}},
	"internal/measure/ring":   {own: []string{"internal/ferrule"}},
	"internal/measure/waits":  {own: []string{"internal/ferrule", "internal/condition"}, tests: []string{"internal/fleet"}},
	"internal/journal":        {own: []string{"internal/ferrule"}},
	"internal/measure/history": {
		own:   []string{"internal/ferrule"},
		third: []string{"modernc.org/sqlite", "golang.org/x/sys"},
	},
	"internal/measure/query": {
		own:   []string{"internal/ferrule"},
		third: []string{"modernc.org/sqlite", "modernc.org/libc"},
	},
	"internal/measure/plot": {
		own:   []string{"internal/ferrule"},
		third: []string{"golang.org/x/image"},
	},
	"internal/schema": {
		own:   []string{"internal/ferrule"},
		third: []string{"github.com/santhosh-tekuri/jsonschema/v6", "github.com/google/jsonschema-go", "golang.org/x/text"},
	},
	"internal/schema/form":   {own: []string{"internal/ferrule", "internal/schema"}},
	"internal/pipeline":      {own: []string{"internal/ferrule", "internal/ratelimit", "internal/schema"}},
	"internal/agent/catalog": {own: []string{"internal/ferrule", "internal/schema"}},
	"internal/agent/mqttserver": {
		own:   []string{"internal/agent/rpc", "internal/ferrule", "internal/strictjson", "internal/mqttclient", "internal/mqttclient/mcptopics"},
		tests: []string{"internal/agent/catalog", "internal/agent/server", "internal/testenv/mosquitto"},
	},
	"internal/agent/discovery": {
		own:   []string{"internal/ferrule", "internal/strictjson", "internal/mqttclient"},
		tests: []string{"internal/testenv/mosquitto"},
	},
	"internal/agent/skills": {own: []string{"internal/ferrule"}},
	"internal/agent/builtin": {
		own:   []string{"internal/ferrule", "internal/schema", "internal/guard/pinning", "internal/condition", "internal/watch"},
		tests: []string{"internal/agent/catalog", "internal/fleet", "internal/pipeline"},
	},
	"internal/guard/halt":     {own: []string{"internal/ferrule"}},
	"internal/guard/hook":     {own: []string{"internal/ferrule", "internal/program", "internal/ratelimit", "internal/strictjson"}},
	"internal/guard/identity": {own: []string{"internal/ferrule"}},
	"internal/guard/issuer": {
		own:   []string{"internal/ferrule", "internal/guard/identity", "internal/strictjson"},
		third: []string{"github.com/coreos/go-oidc/v3", "github.com/go-jose/go-jose/v4", "golang.org/x/oauth2"},
		tests: []string{"internal/testenv/oidc"},
	},
	"internal/guard/approval": {own: []string{"internal/ferrule", "internal/guard/records", "internal/ratelimit"}, tests: []string{"internal/console", "internal/pipeline", "internal/guard/people"}},
	"internal/guard/policy": {
		own:   []string{"internal/ferrule"},
		third: []string{"github.com/cedar-policy/cedar-go", "github.com/goccy/go-yaml"},
	},
	"internal/guard/people": {own: []string{"internal/ferrule", "internal/guard/records", "internal/mcphttp", "internal/ratelimit"}},
	"internal/guard/oauth": {
		own:   []string{"internal/ferrule", "internal/guard/identity", "internal/guard/records", "internal/mcphttp", "internal/ratelimit"},
		tests: []string{"internal/cluster/clustertest", "internal/cluster/engine", "internal/cluster/shared"},
	},
	"internal/guard/records": {},
	"internal/guard/tokens":  {own: []string{"internal/ferrule", "internal/guard/identity", "internal/guard/records"}},
	"internal/guard/limits":  {own: []string{"internal/ferrule", "internal/guard/records"}},
	"internal/guard/lease":   {own: []string{"internal/ferrule", "internal/guard/records"}},
	"internal/guard/pinning": {own: []string{"internal/ferrule"}},
	"internal/watch":         {own: []string{"internal/ferrule", "internal/guard/records", "internal/condition"}},
	"internal/guard/model":   {tests: []string{"internal/ferrule", "internal/guard/approval", "internal/guard/halt", "internal/guard/lease"}},
	"internal/ops/telemetry": {
		own: []string{"internal/ferrule", "internal/histogram"},
		third: []string{
			"github.com/prometheus/client_golang", "go.opentelemetry.io/otel", "go.opentelemetry.io/proto/otlp", "google.golang.org/protobuf",
		},
		tests: []string{"internal/pipeline", "github.com/prometheus/common"},
	},
	"internal/cluster": {
		own: []string{"internal/ferrule", "internal/cluster/calls", "internal/cluster/engine", "internal/cluster/registry", "internal/cluster/shared", "internal/cluster/streams", "internal/cluster/concurrent", "internal/cluster/taskstore"},
		tests: []string{
			"internal/cluster/clustertest", "internal/journal", "internal/testenv/natscluster",
			"github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2",
		},
	},
	"internal/cluster/engine": {
		own:   []string{"internal/ferrule"},
		third: []string{"github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2"},
	},
	"internal/cluster/registry": {
		own:   []string{"internal/ferrule", "internal/cluster/engine", "internal/cluster/concurrent"},
		third: []string{"github.com/nats-io/nats.go"},
		tests: []string{"internal/cluster/clustertest", "internal/testenv/natscluster"},
	},
	"internal/cluster/calls": {
		own:   []string{"internal/ferrule", "internal/cluster/engine", "internal/ratelimit"},
		third: []string{"github.com/nats-io/nats.go", "github.com/segmentio/encoding"},
		tests: []string{"internal/cluster/clustertest"},
	},
	"internal/cluster/streams": {
		own:   []string{"internal/ferrule", "internal/cluster/engine", "internal/cluster/concurrent", "internal/cluster/seal"},
		third: []string{"github.com/nats-io/nats.go"},
		tests: []string{"internal/cluster/clustertest", "github.com/nats-io/nats-server/v2"},
	},
	"internal/cluster/shared": {
		own:   []string{"internal/ferrule", "internal/cluster/engine", "internal/cluster/concurrent", "internal/cluster/seal", "internal/ratelimit"},
		third: []string{"github.com/nats-io/nats.go"},
		tests: []string{"internal/cluster/clustertest", "github.com/nats-io/nats-server/v2"},
	},
	"internal/cluster/taskstore": {
		own:   []string{"internal/ferrule", "internal/cluster/engine", "internal/cluster/concurrent", "internal/ratelimit"},
		third: []string{"github.com/nats-io/nats.go"},
		tests: []string{"internal/cluster/clustertest"},
	},
	"internal/cluster/concurrent": {},
	"internal/cluster/seal":       {},
	"internal/cluster/clustertest": {
		own:   []string{"internal/cluster/engine", "internal/testenv/wait"},
		third: []string{"github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go"},
	},
	"internal/mcphttp": {own: []string{"internal/strictjson"}, third: []string{"github.com/modelcontextprotocol/go-sdk"}},
	"internal/agent/notify": {
		own:   []string{"internal/ferrule", "internal/mcphttp"},
		third: []string{"github.com/modelcontextprotocol/go-sdk"},
	},
	"internal/agent/tasks": {own: []string{"internal/ferrule"}},
	"internal/agent/server": {
		own:   []string{"internal/strictjson", "internal/ferrule", "internal/agent/skills", "internal/guard/identity", "internal/agent/catalog", "internal/agent/notify", "internal/agent/tasks", "internal/mcphttp", "internal/ratelimit", "internal/schema"},
		tests: []string{"github.com/santhosh-tekuri/jsonschema/v6"},
		third: []string{"github.com/modelcontextprotocol/go-sdk"},
	},
	"internal/lifecycle": {},
	"internal/console": {
		own:   []string{"internal/ferrule", "internal/watch", "internal/condition", "internal/console/api", "internal/console/draw", "internal/console/static", "internal/agent/builtin", "internal/schema/form", "internal/guard/pinning", "internal/schema"},
		tests: []string{"internal/fleet", "internal/pipeline", "internal/testenv/browser", "internal/journal", "internal/ops/audit"},
	},
	"internal/console/api":       {own: []string{"internal/ferrule", "internal/watch", "internal/schema", "internal/agent/builtin", "internal/guard/pinning", "internal/ops/audit", "internal/ops/arguments", "internal/ops/setup", "internal/strictjson"}, tests: []string{"internal/journal", "internal/fleet"}},
	"internal/console/draw":      {own: []string{"internal/ferrule"}},
	"internal/console/panel":     {own: []string{"internal/console/static", "internal/console/templates"}},
	"internal/console/static":    {},
	"internal/console/templates": {},
	"internal/local/control":     {own: []string{"internal/ferrule", "internal/guard/identity"}},
	"internal/local/datadir":     {},
	"internal/kernelfs":          {},
	"internal/permission":        {third: []string{"golang.org/x/sys"}},
	"internal/local/terminal":    {},
	"internal/local/stdio": {
		own:   []string{"internal/ferrule", "internal/lifecycle", "internal/agent/catalog", "internal/agent/server", "internal/agent/tasks", "internal/local/control", "internal/local/datadir", "internal/strictjson"},
		tests: []string{"internal/testenv/meter", "github.com/modelcontextprotocol/go-sdk"},
	},
	"internal/ops/audit": {own: []string{"internal/ferrule", "internal/journal", "internal/local/control", "internal/local/datadir"}},
	"internal/ops/doctor": {
		own:   []string{"internal/ferrule", "internal/guard/policy", "internal/journal", "internal/agent/builtin", "internal/device/protocol/homeassistant/api", "internal/device/transport", "internal/mqttclient", "internal/device/transport/serial", "internal/local/control", "internal/local/datadir", "internal/permission", "internal/local/terminal", "internal/ops/config", "internal/ops/setup"},
		tests: []string{"internal/ops/localca", "internal/testenv/homeassistant", "internal/testenv/mosquitto", "internal/testenv/source"},
	},
	"internal/ops/watchtext": {own: []string{"internal/ferrule", "internal/agent/builtin", "internal/condition", "internal/local/terminal", "internal/measure/gauges", "internal/ops/access", "internal/ops/arguments", "internal/watch"}},
	"internal/ops/access":    {own: []string{"internal/ferrule", "internal/agent/builtin", "internal/ops/arguments", "internal/ops/setup"}},
	"internal/ops/board":     {own: []string{"internal/kernelfs", "internal/permission", "thing/linux", "thing/mcpserver"}},
	"internal/ops/check": {
		own:   []string{"internal/ferrule", "internal/schema", "internal/device/protocol/jsonrpc", "internal/device/transport", "internal/device/transport/inbound", "internal/device/transport/mcpmqtt", "internal/device/transport/mqtt", "internal/device/transport/serial", "internal/device/transport/websocket", "internal/mqttclient"},
		tests: []string{"internal/agent/catalog", "internal/agent/mqttserver", "internal/agent/server", "internal/mqttclient/mcptopics", "internal/sim", "internal/testenv/mosquitto", "internal/testenv/uno", "thing", "thing/mcpserver", "thing/xiaozhi", "github.com/gobwas/ws"},
	},
	"internal/ops/homesetup": {
		own:   []string{"internal/ferrule", "internal/device/protocol/homeassistant", "internal/device/protocol/homeassistant/api", "internal/device/transport", "internal/ops/config"},
		tests: []string{"internal/testenv/homeassistant"},
	},
	"internal/ops/devicetext":    {own: []string{"internal/ferrule", "internal/agent/builtin", "internal/local/terminal", "internal/measure/gauges", "internal/ops/arguments"}},
	"internal/ops/flashing":      {own: []string{"internal/ferrule", "internal/agent/builtin", "internal/guard/pinning"}},
	"internal/ops/calling":       {own: []string{"internal/ferrule", "internal/agent/builtin", "internal/local/terminal", "internal/ops/arguments", "internal/schema", "internal/schema/form"}},
	"internal/ops/attachment":    {own: []string{"internal/ferrule"}},
	"internal/ops/logging":       {own: []string{"internal/ferrule"}},
	"internal/ops/arguments":     {own: []string{"internal/ferrule"}},
	"internal/ops/table":         {},
	"internal/ops/export":        {own: []string{"internal/ferrule", "internal/agent/builtin", "internal/measure/sparkline", "internal/ops/audit"}},
	"internal/ops/manpage":       {},
	"internal/measure/gauges":    {own: []string{"internal/ferrule", "internal/measure/sparkline"}, tests: []string{"internal/testenv/screen"}},
	"internal/measure/sparkline": {own: []string{"internal/ferrule"}},
	"internal/agent/rpc":         {},
	"internal/agent/endpoint": {
		own:   []string{"internal/agent/rpc", "internal/ferrule", "internal/strictjson"},
		third: []string{"github.com/gobwas/ws"},
		tests: []string{"internal/agent/catalog", "internal/agent/server"},
	},
	"internal/ops/setup": {own: []string{"internal/ferrule"}, third: []string{"github.com/tailscale/hujson", "github.com/pelletier/go-toml/v2"}},
	"thing":              {third: []string{"github.com/google/jsonschema-go"}},
	"thing/hardware":     {own: []string{"internal/kernelfs", "thing"}, third: []string{"github.com/warthog618/go-gpiocdev", "golang.org/x/sys"}},
	"thing/xiaozhi": {
		own:   []string{"thing"},
		third: []string{"github.com/gobwas/ws", "github.com/mochi-mqtt/server/v2/packets"},
	},
	"thing/mcpserver": {
		own:   []string{"thing", "internal/mcphttp"},
		third: []string{"github.com/modelcontextprotocol/go-sdk", "github.com/gobwas/ws", "github.com/brutella/dnssd"},
		tests: []string{"internal/testenv/mcp/fixtures"},
	},
	"thing/linux":                        {own: []string{"internal/kernelfs", "thing", "thing/hardware"}, tests: []string{"thing/mcpserver"}},
	"thing/mcpserver/example/greenhouse": example,
	"thing/mcpserver/example/doorbell":   example,
	"thing/mcpserver/example/workshop":   example,
	"internal/sim": {
		own:   []string{"thing", "thing/xiaozhi", "internal/mqttclient"},
		third: []string{"github.com/mochi-mqtt/server/v2"},
		tests: []string{"internal/ferrule", "internal/device/protocol", "internal/device/protocol/xiaozhi", "internal/device/protocol/xiaozhi/provision", "internal/device/transport", "internal/device/transport/mqtt", "internal/device/transport/websocket", "internal/testenv/transcript", "thing/mcpserver"},
	},
	"internal/testenv/natscluster": {own: []string{"internal/ops/localca", "internal/testenv/wait"}, tests: []string{"github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2"}},
	"internal/testenv/apps":        {own: []string{"internal/testenv/browser"}},
	"internal/testenv/browser":     {own: []string{"internal/testenv/wait"}},
	"internal/testenv/collector":   {third: []string{"go.opentelemetry.io/collector"}}, // a module of its own
	"internal/testenv/idle": { // a module of its own
		third: []string{"github.com/gobwas/ws", "github.com/gorilla/websocket", "github.com/coder/websocket", "github.com/lxzan/gws"},
	},
	"internal/testenv/lan":          {},
	"internal/testenv/mcp/fixtures": {own: []string{"thing", "thing/mcpserver"}},
	"internal/testenv/meter":        {own: []string{"internal/ferrule", "internal/agent/builtin", "internal/fleet", "internal/local/control"}},
	"internal/testenv/model":        {},
	"internal/testenv/mosquitto":    {},
	"internal/testenv/mcpmqtt":      {},
	"internal/testenv/oidc":         {},
	"internal/testenv/screen":       {},
	"internal/testenv/source":       {},
	"internal/testenv/transcript":   {},
	"internal/testenv/uno":          {third: []string{"golang.org/x/sys"}, tests: []string{"internal/testenv/transcript"}},
	"internal/testenv/board":        {own: []string{"internal/testenv/guest"}},
	"internal/testenv/figure":       {},
	"internal/testenv/guest":        {},
	"internal/testenv/usb":          {own: []string{"internal/testenv/guest"}, tests: []string{"internal/testenv/uno"}},
	"internal/testenv/wait":         {},
	"internal/testenv/zigbee":       {own: []string{"internal/testenv/mosquitto", "internal/testenv/wait"}},
	"internal/ops/config": {
		own:   []string{"internal/ferrule", "internal/guard/approval", "internal/guard/identity", "internal/guard/issuer", "internal/guard/policy", "internal/cluster", "internal/agent/catalog", "internal/device/dock", "internal/agent/server", "internal/agent/endpoint", "internal/measure/history", "internal/journal", "internal/ops/telemetry", "internal/device/overlay", "internal/device/protocol/hass", "internal/device/protocol/homeassistant/api", "internal/pipeline", "internal/measure/poller", "internal/device/transport/inbound", "internal/device/transport/mqtt", "internal/mqttclient", "internal/device/transport/serial", "internal/device/transport/tcp", "internal/device/transport/httpclient", "internal/device/transport/websocket", "internal/guard/oauth", "internal/guard/hook", "internal/device/transport/plugin", "internal/program"},
		third: []string{"github.com/goccy/go-yaml"},
	},
	"internal/ops/localca": {third: []string{"rsc.io/qr"}, tests: []string{"github.com/makiuchi-d/gozxing"}},
	"internal/gateway": {
		own: []string{
			"internal/console", "internal/console/api", "internal/console/panel",
			"internal/ferrule", "internal/guard/approval", "internal/guard/halt", "internal/guard/hook", "internal/guard/identity", "internal/guard/issuer", "internal/guard/lease", "internal/guard/limits", "internal/guard/policy", "internal/guard/records", "internal/watch", "internal/lifecycle", "internal/cluster", "internal/fleet", "internal/journal", "internal/pipeline", "internal/guard/people", "internal/guard/oauth", "internal/guard/tokens", "internal/cluster/taskstore",
			"internal/agent/builtin", "internal/agent/catalog", "internal/agent/discovery", "internal/agent/endpoint", "internal/agent/mqttserver", "internal/agent/server", "internal/agent/tasks",
			"internal/device/dock", "internal/device/overlay", "internal/device/protocol", "internal/device/protocol/hass", "internal/device/protocol/homeassistant", "internal/device/protocol/homeassistant/api", "internal/device/protocol/mcp", "internal/device/protocol/mcpu", "internal/device/protocol/xiaozhi", "internal/device/protocol/xiaozhi/provision",
			"internal/mqttclient/mcptopics", "internal/device/transport", "internal/device/transport/httpclient", "internal/device/transport/inbound", "internal/device/transport/mcpmqtt", "internal/device/transport/mqtt", "internal/device/transport/plugin", "internal/mqttclient", "internal/device/transport/serial", "internal/device/transport/tcp", "internal/device/transport/websocket",
			"internal/local/control", "internal/local/datadir", "internal/local/stdio",
			"internal/condition", "internal/measure/history", "internal/measure/plot", "internal/measure/poller", "internal/measure/query", "internal/measure/waits",
			"internal/ops/audit", "internal/ops/config", "internal/ops/doctor", "internal/ops/localca", "internal/ops/telemetry", "internal/schema",
			"internal/mcphttp", "internal/ratelimit",
		},
		tests: []string{"internal/cluster/clustertest", "internal/cluster/engine", "internal/testenv/mosquitto", "github.com/modelcontextprotocol/go-sdk"},
	},
	"cmd/ferrule": {
		own: []string{
			"internal/ferrule", "internal/gateway", "internal/pipeline", "internal/sim", "internal/agent/builtin", "internal/agent/server", "internal/local/control", "internal/local/datadir", "internal/local/terminal",
			"internal/guard/pinning", "internal/measure/gauges", "internal/measure/history", "internal/measure/query", "internal/ops/access", "internal/ops/arguments", "internal/ops/attachment", "internal/ops/audit", "internal/ops/board", "internal/ops/calling", "internal/ops/check", "internal/ops/config", "internal/ops/devicetext", "internal/ops/doctor", "internal/ops/export", "internal/ops/flashing", "internal/ops/homesetup", "internal/ops/localca", "internal/ops/logging", "internal/ops/manpage", "internal/ops/setup", "internal/ops/table", "internal/ops/watchtext",
		},
		third: []string{"github.com/spf13/cobra"},
		tests: []string{"internal/condition", "internal/device/protocol/homeassistant/api", "internal/console/api", "internal/mqttclient/mcptopics", "internal/testenv/homeassistant", "internal/testenv/mcpmqtt", "internal/testenv/mosquitto", "internal/testenv/zigbee", "internal/device/protocol/hass/discovery", "internal/device/protocol/hass/entity", "internal/mqttclient", "internal/agent/catalog", "internal/agent/mqttserver", "internal/agent/server", "internal/cluster", "internal/cluster/clustertest", "internal/device/dock", "internal/device/protocol", "internal/device/protocol/mcpu", "internal/device/protocol/xiaozhi", "internal/device/transport", "internal/device/transport/inbound", "internal/device/transport/mcpmqtt", "internal/mqttclient", "internal/device/transport/serial", "internal/device/transport/tcp", "internal/fleet", "internal/journal", "internal/lifecycle", "internal/measure/poller", "internal/measure/waits", "internal/ops/telemetry", "internal/testenv/browser", "internal/testenv/meter", "internal/testenv/screen", "internal/testenv/source", "internal/testenv/natscluster", "internal/testenv/lan", "internal/testenv/model", "internal/testenv/mcp/fixtures", "internal/testenv/oidc", "internal/testenv/uno", "thing", "thing/mcpserver", "thing/xiaozhi", "github.com/gobwas/ws", "github.com/nats-io/nats.go", "go.bug.st/serial", "github.com/modelcontextprotocol/go-sdk", "go.opentelemetry.io/proto/otlp", "google.golang.org/protobuf", "internal/guard/identity", "internal/guard/tokens", "internal/device/transport/mqttclient", "internal/device/transport/mqttclient", "internal/testenv/apps", "internal/watch"},
	},
	"packaging":      {tests: []string{"github.com/santhosh-tekuri/jsonschema/v6", "github.com/goccy/go-yaml", "internal/ops/config"}},
	"packaging/pack": {},
}

// TestImports compares the imports of every Go file, for every system, with the
// table.
func TestImports(t *testing.T) {
	seen := make(map[string]bool)
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() != "." && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		dir := path.Dir(filepath.ToSlash(file))
		seen[dir] = true
		r, ok := importRules[dir]
		if !ok {
			t.Errorf("package %s is not in the table of imports", dir)
			return filepath.SkipDir
		}
		imports, err := importsOf(file)
		if err != nil {
			return err
		}
		for _, imported := range imports {
			if err := r.allows(dir, imported, strings.HasSuffix(file, "_test.go")); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir := range importRules {
		if !seen[dir] {
			t.Errorf("the table lists %s, which does not exist", dir)
		}
	}
}

// TestDrawing compares the groups in the drawing of CONTRIBUTING.md with the table: a
// package imports only its own group and rows below it.
func TestDrawing(t *testing.T) {
	page, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, drawing, _ := strings.Cut(string(page), "```text\n")
	drawing, _, _ = strings.Cut(drawing, "```")
	rows := make(map[string]int) // by group, from the top
	for i, line := range strings.Split(drawing, "\n") {
		names, _, _ := strings.Cut(line, "#")
		for _, name := range strings.Fields(names) {
			rows[name] = i
		}
	}
	group := func(dir string) string {
		if dir == "cmd/ferrule" {
			return dir
		}
		dir, ok := strings.CutPrefix(dir, "internal/")
		dir, _, _ = strings.Cut(dir, "/")
		if !ok || dir == "sim" || dir == "testenv" {
			return "" // not drawn
		}
		return dir
	}
	for dir, rule := range importRules {
		from := group(dir)
		if from == "" {
			continue
		}
		above, ok := rows[from]
		if !ok {
			t.Errorf("the drawing lacks %s", from)
		}
		for _, own := range rule.own {
			if to := group(own); to != "" && to != from && rows[to] <= above {
				t.Errorf("%s imports %s, which is not below it in the drawing", dir, own)
			}
		}
	}
}

func importsOf(file string) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var imports []string
	for _, spec := range parsed.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		imports = append(imports, name)
	}
	return imports, nil
}

// allows returns an error if a package may not import another.
func (r importRule) allows(dir, imported string, test bool) error {
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return nil // the standard library
	}
	if own, ok := strings.CutPrefix(imported, module); ok {
		own = strings.TrimPrefix(own, "/")
		if own == "" {
			own = "."
		}
		if slices.Contains(r.own, own) || test && (own == dir || slices.Contains(slices.Concat(testTools, r.tests), own)) {
			return nil
		}
		return fmt.Errorf("%s may not import %s: think about the design before the table", dir, own)
	}
	may := r.third
	if test {
		may = slices.Concat(may, testTools, r.tests)
	}
	if slices.ContainsFunc(may, func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") }) {
		return nil
	}
	return fmt.Errorf("%s may not import %s: one third-party library lives in one package", dir, imported)
}
