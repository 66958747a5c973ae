package registry

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// FuzzScan checks that scan parses like encoding/json.
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
			f.Errorf("scan does not accept %s", data)
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
			t.Fatalf("scan accepts %q: %v", data, err)
		}
		if !reflect.DeepEqual(quick, slow) {
			t.Errorf("%q: got %+v, want %+v", data, quick, slow)
		}
	})
}
