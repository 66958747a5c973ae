package registry

import (
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestVouched checks that only a node that has the secret of the tenant can say what a
// person decided.
func TestVouched(t *testing.T) {
	there := robotAt("b", ferrule.StateOffline, 3)
	there.Accepted, there.AcceptedAt = "accepted", time.UnixMilli(1_700_000_000_000)
	known := func(change func(r *record)) *ferrule.Device {
		t.Helper()
		writer := testView()
		r := recordOf(there, 3)
		r.Voucher = writer.voucher(r.device("robot"))
		change(&r)
		v := testView()
		e := entry{r.device("robot"), 1, r.Voucher}
		v.update("robot", e)
		dev, ok := v.known("robot")
		if !ok {
			t.Fatal("it is not known")
		}
		return dev
	}
	if dev := known(func(*record) {}); !dev.Vouched || dev.Accepted != "accepted" || !dev.AcceptedAt.Equal(there.AcceptedAt) {
		t.Errorf("got %+v", dev)
	}
	for name, change := range map[string]func(r *record){
		"offline":  func(r *record) { r.Reason, r.Since = "other", 1 }, // not a decision
		"new Kind": func(r *record) { r.Kind = "k2" },
	} {
		if !known(change).Vouched {
			t.Errorf("%s: not vouched", name)
		}
	}
	for name, change := range map[string]func(r *record){
		"no voucher":    func(r *record) { r.Voucher = "" },
		"other voucher": func(r *record) { r.Voucher = "AAAAAAAAAAAAAAAAAAAAAA" },
		"other Kind":    func(r *record) { r.Accepted = "evil" },
		"later":         func(r *record) { r.AcceptedAt++ },
		"pending":       func(r *record) { r.Pending = true },
		"other address": func(r *record) { r.Address = "usb:2" },
		"local":         func(r *record) { r.Local = true },
		"sensor":        func(r *record) { r.Sensor = true },
	} {
		if known(change).Vouched {
			t.Errorf("%s: vouched", name)
		}
	}
	there.Sensor = true
	if dev := known(func(*record) {}); !dev.Vouched || !dev.Sensor {
		t.Errorf("of a sensor, got %+v", dev)
	}
	if known(func(r *record) { r.Sensor = false }).Vouched {
		t.Error("a sensor that a person adopted, as somebody else says: vouched")
	}
	other := testView()
	other.key = []byte("the key of another tenant")
	r := recordOf(there, 3)
	if other.voucher(r.device("robot")) == testView().voucher(r.device("robot")) || testView().voucher(r.device("robot")) == testView().voucher(r.device("arm")) {
		t.Error("another tenant, or another ID, has the same voucher")
	}
}

// TestForgedOwnRecord checks that a node does not vouch for a record that somebody wrote
// in its name.
func TestForgedOwnRecord(t *testing.T) {
	for _, vouched := range []bool{false, true} {
		v := testView()
		v.synced = true
		forged := robotAt("a", ferrule.StateOnline, 3)
		e := entry{device: forged, revision: 1}
		if vouched { // an earlier run of this node wrote it
			e.voucher = v.voucher(forged)
		}
		v.update("robot", e)
		r := v.write(t, 2)
		if r == nil || r.State != ferrule.StateOffline || (r.Voucher != "") != vouched {
			t.Errorf("vouched %t: wrote %+v", vouched, r)
		}
	}
	v := testView()
	v.synced = true
	v.settle(ownRobot(ferrule.StateOnline))
	if r := v.write(t, 1); r == nil || r.Voucher == "" {
		t.Errorf("its own device is written as %+v", r)
	}
}
