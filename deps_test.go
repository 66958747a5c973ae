package ferrule_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/ferrulehq/ferrule"

// room is a package, or several that keep the same rules.
type room struct {
	// own is which packages of this module it may import; "." is the root.
	own []string
	// third is which third-party modules it may import, by path prefix.
	third []string
	// tests is what its tests may import beside, of either.
	tests []string
}

// testTools may be used by the tests of any room.
var testTools = []string{"golang.org/x/tools/txtar", "github.com/rogpeppe/go-internal"}

// example is what a program of a maker may import.
var example = room{own: []string{"thing", "thing/mcpserver"}, tests: []string{"github.com/modelcontextprotocol/go-sdk"}}

// rooms is the drawing of the house. Siblings never meet: a consumer declares
// the interface that it needs, and cmd/ferrule puts the parts together.
var rooms = map[string]room{
	".":    {},
	"wire": {},
	"wire/tcp": {
		own:   []string{"wire"},
		tests: []string{"wire/wiretest"},
	},
	"wire/serial": {
		own:   []string{"wire"},
		third: []string{"go.bug.st/serial", "golang.org/x/sys"},
		tests: []string{"rig/uno", "wire/wiretest"},
	},
	"wire/lobby": {own: []string{"wire"}},
	"wire/mqtt": {
		own:   []string{"wire", "wire/lobby"},
		third: []string{"github.com/mochi-mqtt/server/v2"},
		tests: []string{"wire/wiretest"},
	},
	"wire/web": {
		own:   []string{"wire"},
		tests: []string{"rig/lan", "wire/ws", "github.com/gobwas/ws"},
	},
	"wire/ws": {
		own:   []string{"wire", "wire/lobby"},
		third: []string{"github.com/gobwas/ws"},
		tests: []string{"wire/wiretest"},
	},
	"wire/wiretest": {own: []string{"wire"}},
	"dialect":       {own: []string{".", "wire"}},
	"dialect/mcpu": {
		own:   []string{".", "wire", "dialect"},
		tests: []string{"wire/wiretest", "dialect/dialecttest", "overlay", "schema", "thing"},
	},
	"dialect/xiaozhi": {
		own:   []string{".", "wire", "dialect"},
		tests: []string{"wire/wiretest", "dialect/dialecttest", "overlay", "schema", "sim", "thing", "thing/xiaozhi"},
	},
	"dialect/mcpdev": {
		own: []string{".", "wire", "dialect"},
		tests: []string{
			"dialect/dialecttest", "dock", "fleet", "journal", "overlay", "pipeline", "schema", "thing", "thing/mcpserver", "wire/web", "wire/wiretest", "wire/ws",
			"github.com/modelcontextprotocol/go-sdk",
		},
	},
	"dialect/dialecttest": {own: []string{".", "wire", "dialect", "wire/wiretest"}},
	"dock": {
		own:   []string{".", "wire", "dialect"},
		tests: []string{"fleet", "wire/wiretest"},
	},
	"overlay":      {own: []string{".", "schema"}},
	"fleet":        {own: []string{"."}},
	"sense":        {own: []string{".", "sense/stitch"}, tests: []string{"dialect/mcpu"}},
	"sense/stitch": {own: []string{"."}},
	"journal":      {own: []string{"."}},
	"history": {
		own:   []string{"."},
		third: []string{"modernc.org/sqlite", "golang.org/x/sys"},
	},
	"history/query": {
		own:   []string{"."},
		third: []string{"modernc.org/sqlite", "modernc.org/libc"},
	},
	"history/plot": {
		own:   []string{"."},
		third: []string{"golang.org/x/image"},
	},
	"schema": {
		own:   []string{"."},
		third: []string{"github.com/santhosh-tekuri/jsonschema/v6", "github.com/google/jsonschema-go", "golang.org/x/text"},
	},
	"pipeline": {own: []string{".", "schema"}},
	"catalog":  {own: []string{".", "schema"}},
	"toolbox": {
		own:   []string{".", "schema"},
		tests: []string{"catalog", "fleet", "pipeline"},
	},
	"auth": {own: []string{"."}},
	"observe": {
		own: []string{"."},
		third: []string{
			"github.com/prometheus/client_golang", "go.opentelemetry.io/otel", "go.opentelemetry.io/proto/otlp", "google.golang.org/protobuf",
		},
		tests: []string{"pipeline", "github.com/prometheus/common"},
	},
	"bus": {
		own:   []string{"."},
		third: []string{"github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2"},
		tests: []string{"journal", "rig/cluster"},
	},
	"front/agent": {
		own:   []string{".", "auth", "catalog"},
		third: []string{"github.com/modelcontextprotocol/go-sdk"},
	},
	"front/control": {own: []string{"."}},
	"front/endpoint": {
		own:   []string{"."},
		third: []string{"github.com/gobwas/ws"},
		tests: []string{"catalog", "front/agent"},
	},
	"setup": {third: []string{"github.com/tailscale/hujson", "github.com/pelletier/go-toml/v2"}},
	"thing": {third: []string{"github.com/google/jsonschema-go"}},
	"thing/xiaozhi": {
		own:   []string{"thing"},
		third: []string{"github.com/gobwas/ws", "github.com/mochi-mqtt/server/v2/packets"},
	},
	"thing/mcpserver": {
		own:   []string{"thing"},
		third: []string{"github.com/modelcontextprotocol/go-sdk", "github.com/gobwas/ws", "github.com/brutella/dnssd"},
		tests: []string{"rig/mcp/fixtures"},
	},
	"thing/mcpserver/example/greenhouse": example,
	"thing/mcpserver/example/doorbell":   example,
	"thing/mcpserver/example/workshop":   example,
	"sim": {
		own:   []string{"thing", "thing/xiaozhi"},
		tests: []string{".", "dialect", "dialect/xiaozhi", "wire", "wire/mqtt", "wire/ws"},
	},
	"rig/cluster":   {tests: []string{"github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2"}},
	"rig/collector": {third: []string{"go.opentelemetry.io/collector"}}, // a module of its own
	"rig/idle": { // a module of its own
		third: []string{"github.com/gobwas/ws", "github.com/gorilla/websocket", "github.com/coder/websocket", "github.com/lxzan/gws"},
	},
	"rig/lan":          {},
	"rig/mcp/fixtures": {own: []string{"thing", "thing/mcpserver"}},
	"rig/model":        {},
	"rig/uno":          {third: []string{"golang.org/x/sys"}},
	"rig/usb":          {tests: []string{"rig/uno"}},
	"config": {
		own:   []string{".", "auth", "bus", "catalog", "dock", "front/agent", "front/endpoint", "history", "journal", "observe", "overlay", "pipeline", "sense", "wire/lobby", "wire/mqtt", "wire/serial", "wire/tcp", "wire/web", "wire/ws"},
		third: []string{"github.com/goccy/go-yaml"},
	},
	"cmd/ferrule": {
		own: []string{
			".", "auth", "bus", "catalog", "config", "dialect", "dialect/mcpdev", "dialect/mcpu", "dialect/xiaozhi", "dock", "fleet", "front/agent", "front/control", "front/endpoint",
			"history", "history/plot", "history/query", "journal", "observe", "overlay", "pipeline", "sense", "setup", "sim", "toolbox", "wire", "wire/lobby", "wire/mqtt", "wire/serial", "wire/tcp", "wire/web", "wire/ws",
		},
		third: []string{"github.com/spf13/cobra"},
		tests: []string{"rig/cluster", "rig/lan", "rig/model", "rig/mcp/fixtures", "rig/uno", "thing", "thing/mcpserver", "thing/xiaozhi", "github.com/gobwas/ws", "github.com/nats-io/nats.go", "go.bug.st/serial", "github.com/modelcontextprotocol/go-sdk", "go.opentelemetry.io/proto/otlp", "google.golang.org/protobuf"},
	},
	"packaging":      {tests: []string{"github.com/santhosh-tekuri/jsonschema/v6"}},
	"packaging/pack": {},
}

// TestRooms reads the imports of every Go file, for every system, and compares
// them with the table.
func TestRooms(t *testing.T) {
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
		r, ok := rooms[dir]
		if !ok {
			t.Errorf("package %s is not in the table of rooms", dir)
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
	for dir := range rooms {
		if !seen[dir] {
			t.Errorf("the table has a room %s, and the house has not", dir)
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

// allows tells why a room may not import a package.
func (r room) allows(dir, imported string, test bool) error {
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return nil // the standard library
	}
	if own, ok := strings.CutPrefix(imported, module); ok {
		own = strings.TrimPrefix(own, "/")
		if own == "" {
			own = "."
		}
		if slices.Contains(r.own, own) || test && (own == dir || slices.Contains(r.tests, own)) {
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
	return fmt.Errorf("%s may not import %s: one third-party library lives in one room", dir, imported)
}
