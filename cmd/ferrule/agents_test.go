package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/sim"
)

// url is an address of the gateway's web server.
func (g *testGateway) url(path string) string { return "http://" + g.web.Addr().String() + path }

func simConfig() sim.Config { return sim.Config{} }

// crowd puts many devices into the fleet that answer at once.
func (g *testGateway) crowd(devices, kinds int) {
	manifests := make([]*ferrule.Manifest, kinds)
	ids := make([]ferrule.Kind, kinds)
	for k := range manifests {
		m := &ferrule.Manifest{Model: fmt.Sprintf("sensor-%d", k)}
		for n := range 5 {
			m.Tools = append(m.Tools, ferrule.Tool{
				Name: fmt.Sprintf("read_%d", n), Text: "Tell what channel it measures", Effect: ferrule.Reads,
				Input: json.RawMessage(`{"properties":{"channel":{"type":"integer"}},"type":"object"}`),
			})
		}
		kind, err := m.Kind()
		if err != nil {
			g.t.Fatal(err)
		}
		manifests[k], ids[k] = m, kind
	}
	answer := func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		return &ferrule.Result{Value: json.RawMessage(fmt.Sprintf(`{"device":%q}`, call.Device))}, nil
	}
	for i := range devices {
		k := i % kinds
		g.fleet.Put(&ferrule.Device{
			ID: fmt.Sprintf("sensor-%05d", i), Kind: ids[k], Model: manifests[k].Model, Medium: "test", Address: fmt.Sprint(i),
			State: ferrule.StateOnline, Since: time.Now(), Trust: ferrule.TrustAdopted,
		}, manifests[k], answer)
	}
}
