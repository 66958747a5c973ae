package registry

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestRecordIsSmall limits the size of a record: a server keeps all of them in memory.
func TestRecordIsSmall(t *testing.T) {
	dev := &ferrule.Device{
		ID: "esp32-demo-ab12", Address: "usb:303a:1001:34851871A3D4", Transport: "serial", Protocol: "mcpu", Node: "gateway-7", Epoch: 12,
		Kind: ferrule.Kind(strings.Repeat("f", 64)), State: ferrule.StateOnline, Since: time.Now(), Trust: ferrule.TrustAdopted,
		Accepted: ferrule.Kind(strings.Repeat("f", 64)),
	}
	r := recordOf(dev, 12)
	data, err := json.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes: %s", len(data), data)
	if len(data) > 256 {
		t.Errorf("a record has %d bytes, want at most 256", len(data))
	}
	back, err := parseRecord(data)
	if err != nil {
		t.Fatal(err)
	}
	dev.Since = dev.Since.Truncate(time.Millisecond)
	if got := back.device(dev.ID); fmt.Sprint(*got) != fmt.Sprint(*dev) {
		t.Errorf("got %+v, want %+v", got, dev)
	}
}

// FuzzRecord checks that any accepted record gives a device that can be encoded again.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"address":"usb:1","transport":"serial","protocol":"mcpu","node":"a","epoch":3,"kind":"ab","state":"online","since":1700000000000}`))
	f.Add([]byte(`{"address":"x","local":true,"node":"a","epoch":1,"kind":"ab","state":"offline","since":1,"reason":"\u202e","pending":true,"labels":{"a":"b"}}`))
	f.Add([]byte(`{"state":"online"}`))
	f.Add([]byte(`{"address":"usb:1","node":"a","epoch":3,"kind":"ab","state":"online","since":1000000000000000000}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		dev := entryIn("robot", data, 1).device
		if dev == nil {
			return
		}
		if dev.ID != "robot" || ferrule.CheckID(dev.Node) != nil || dev.Kind == "" || dev.Reason != ferrule.Clean(dev.Reason, maxReason) {
			t.Errorf("got %+v", dev)
		}
		if _, err := json.Marshal(dev); err != nil {
			t.Errorf("encoding the device: %v", err)
		}
		r := recordOf(dev, dev.Epoch)
		text, err := json.Marshal(&r)
		if err != nil {
			t.Fatal(err)
		}
		if again := entryIn("robot", text, 1).device; len(text) <= maxRecord && (again == nil || !reflect.DeepEqual(again, dev)) {
			t.Errorf("%+v was encoded as %s", dev, text)
		}
	})
}

// FuzzManifest checks that an accepted manifest has the Kind of its key.
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
		if got, err := m.Kind(); err != nil || string(got) != kind {
			t.Errorf("its Kind is %s, %v", got, err)
		}
	})
}
