package cluster

import (
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// FuzzRecord: whatever a record says, the device that is made of it can be shown and
// written again.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"address":"usb:1","transport":"serial","protocol":"mcpu","node":"a","epoch":3,"kind":"ab","state":"online","since":1700000000000}`))
	f.Add([]byte(`{"address":"x","local":true,"node":"a","epoch":1,"kind":"ab","state":"offline","since":1,"reason":"\u202e","pending":true,"labels":{"a":"b"}}`))
	f.Add([]byte(`{"state":"online"}`))
	f.Add([]byte(`{"address":"usb:1","node":"a","epoch":3,"kind":"ab","state":"online","since":1000000000000000000}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		dev := deviceIn("robot", data)
		if dev == nil {
			return
		}
		if dev.ID != "robot" || ferrule.CheckID(dev.Node) != nil || dev.Kind == "" || dev.Reason != ferrule.Clean(dev.Reason, maxReason) {
			t.Errorf("got %+v", dev)
		}
		if _, err := json.Marshal(dev); err != nil {
			t.Errorf("it cannot be shown: %v", err)
		}
		r := recordOf(dev, dev.Epoch)
		text, err := json.Marshal(&r)
		if err != nil {
			t.Fatal(err)
		}
		if again := deviceIn("robot", text); len(text) <= maxRecord && (again == nil || !reflect.DeepEqual(again, dev)) {
			t.Errorf("%+v was written as %s", dev, text)
		}
	})
}

// FuzzManifest: what is unpacked is of its Kind, or refused.
func FuzzManifest(f *testing.F) {
	m := &ferrule.Manifest{Model: "arm", Tools: []ferrule.Tool{{Name: "move"}}}
	kind, err := m.Kind()
	if err != nil {
		f.Fatal(err)
	}
	packed, err := packManifest(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(kind), packed)
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		m, err := unpackManifest(ferrule.Kind(kind), data)
		if err != nil {
			return
		}
		if is, err := m.Kind(); err != nil || string(is) != kind {
			t.Errorf("it is of Kind %s, %v", is, err)
		}
	})
}

// FuzzReplies: whatever comes back, one call at most ends by it, and nothing blocks.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("R{}"), []byte("G{}"))
	f.Add([]byte("P\x00\x02abc"), []byte("P\x01\x02def"))
	f.Add([]byte("P\x00\x01E{}"), []byte("Q{}"))
	f.Add([]byte("U"), []byte("U\x02"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		o := newOutbox("boot")
		token, out := o.open()
		for _, data := range [][]byte{one, two, one} {
			o.receive(&nats.Msg{Subject: "x." + token, Data: data})
		}
		trip := &trip{call: &ferrule.Call{Device: "robot", Tool: "look"}, node: "b", out: out}
		for len(out.frames) > 0 {
			trip.take(t.Context(), <-out.frames)
		}
		select {
		case data := <-out.end:
			if result, err := trip.end(t.Context(), data); (result == nil) == (err == nil) {
				t.Errorf("got %v, %v", result, err)
			}
		default:
		}
	})
}

// FuzzRequest: whatever another node sends, it is answered, and nothing is served that
// this node does not hold.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"call":{"principal":{"role":"agent","name":"x"},"device":"robot","tool":"look"},"kind":"k","epoch":1,"effect":"reads"}`))
	f.Add([]byte(`{"call":{"device":"gateway","tool":"adopt_device"}}`))
	reached := false
	serve := func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		reached = true
		return &ferrule.Result{Value: json.RawMessage("1")}, nil
	}
	b := &Cluster{parts: Parts{Serve: serve, Decide: serve, Log: slog.New(slog.DiscardHandler)}, inbox: newInbox()}
	b.view = newView(Config{Node: "a"}, nil, nil, nil)
	dev := &ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOnline, Since: time.Now()}
	b.view.own["robot"] = &holding{device: dev, laid: &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "look", Effect: ferrule.Reads}}}, epoch: 1}
	f.Fuzz(func(t *testing.T, data []byte) {
		reached = false
		end := b.serve(t.Context(), nil, &nats.Msg{Reply: "r", Data: data}, &served{})
		if len(end) != 1 || len(end[0]) == 0 {
			t.Fatalf("got %q", end)
		}
		var req request
		if err := json.Unmarshal(data, &req); reached && (err != nil || req.Call.Device != ferrule.GatewayID && (req.Epoch != 1 || req.Kind != "k" || req.Call.Tool != "look")) {
			t.Errorf("it was served: %q", data)
		}
	})
}
