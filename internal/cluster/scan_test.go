package cluster

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// FuzzScan: what is read in the quick way is what encoding/json reads.
func FuzzScan(f *testing.F) {
	dev := &ferrule.Device{
		ID: "lamp", Address: "usb:303a:1001:3485", Local: true, Transport: "serial", Protocol: "mcpu", Node: "b", Kind: "abc",
		State: ferrule.StateOffline, Since: time.UnixMilli(1), Reason: "unplugged", Trust: ferrule.TrustPending,
		Restarted: time.UnixMilli(2), Changed: time.UnixMilli(3), Previous: "def",
	}
	for range 2 {
		r := recordOf(dev, 7)
		data, err := json.Marshal(&r)
		if err != nil {
			f.Fatal(err)
		}
		if dev.Labels == nil && !new(record).scan(data) {
			f.Errorf("%s takes the slow way", data)
		}
		f.Add(data)
		dev.Labels = map[string]string{"room": "kitchen"}
	}
	for _, text := range []string{
		`{}`, `{"address":"a"}x`, `{"address":"a",}`, `{"epoch":01}`, `{"epoch":-1}`, `{"since":99999999999999999999}`, `{"epoch":}`,
		`{"node":"\u0041"}`, `{"node":"ä"}`, `{"local":false}`, `{"local":tru}`, `{"Node":"a","node":"b"}`, `{"node":"a","node":"b"}`, `{"node":null}`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var quick, slow record
		if !quick.scan(data) {
			return
		}
		if err := json.Unmarshal(data, &slow); err != nil {
			t.Fatalf("%q is no JSON: %v", data, err)
		}
		if !reflect.DeepEqual(quick, slow) {
			t.Errorf("%q is %+v, and not %+v", data, slow, quick)
		}
	})
}
