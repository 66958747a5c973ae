package catalog_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// manifest returns a manifest with tools that take "pin".
func manifest(model string, tools ...string) *ferrule.Manifest {
	m := &ferrule.Manifest{Model: model}
	for _, name := range tools {
		m.Tools = append(m.Tools, ferrule.Tool{
			Name: name, Text: "Does " + name + ".", Effect: ferrule.Changes,
			Input: json.RawMessage(`{"properties":{"pin":{"type":"integer"}},"required":["pin"],"type":"object"}`),
		})
	}
	return m
}

func numbered(name string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%s%d", name, i))
	}
	return all
}

// online returns an online device with a manifest.
func online(id string, m *ferrule.Manifest) *ferrule.Device {
	kind, err := m.Kind()
	if err != nil {
		panic(err)
	}
	return &ferrule.Device{ID: id, Kind: kind, Model: m.Model, State: ferrule.StateOnline, Trust: ferrule.TrustAdopted, Transport: "tcp", Address: "x:1"}
}

// as returns a copy of a device in another state.
func as(dev *ferrule.Device, state ferrule.State, trust ferrule.Trust) *ferrule.Device {
	other := *dev
	other.State, other.Trust, other.Reason = state, trust, "unplugged"
	return &other
}

// gateway returns a manifest with built-in tools.
func gateway() (*ferrule.Device, *ferrule.Manifest) {
	m := manifest("ferrule", "status", "list_devices", "find_devices", "find_tools", "describe_tool", "call_many", "adopt_device")
	m.Tools[6].UserOnly = true
	return online(ferrule.GatewayID, m), m
}

// some returns a catalog with a gateway and a budget.
func some(budget int) *catalog.Catalog {
	c := catalog.New(catalog.Config{Budget: budget})
	c.Put(gateway())
	return c
}

// put adds n devices that share a manifest.
func put(c *catalog.Catalog, name string, n int, m *ferrule.Manifest) {
	one := online(name, m)
	for i := range n {
		c.Put(named(one, fmt.Sprintf("%s-%d", name, i)), m)
	}
}

// named returns a device of the same Kind with another ID.
func named(dev *ferrule.Device, id string) *ferrule.Device {
	other := *dev
	other.ID = id
	return &other
}

// names returns the names in a list, and its shape.
func names(c *catalog.Catalog) string {
	list, shape := c.List()
	all := []string{string(shape) + ":"}
	for _, o := range list {
		all = append(all, strings.TrimPrefix(o.Name, "gateway"))
	}
	return strings.Join(all, " ")
}

func code(err error) ferrule.Code {
	if err == nil {
		return ""
	}
	return ferrule.AsError(err).Code
}

func TestConfig(t *testing.T) {
	if err := catalog.DefaultConfig().Check(); err != nil {
		t.Error(err)
	}
	if err := (catalog.Config{Budget: -1}).Check(); err == nil {
		t.Error("a budget below nothing is taken")
	}
}
