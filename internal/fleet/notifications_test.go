package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func notified(device, method, params string) ferrule.Event {
	return ferrule.Event{Type: ferrule.Notified, Device: device, Method: method, Params: []byte(params)}
}

// TestRecordEvent checks that the last notification of each method is stored, as long
// as the device is known and adopted.
func TestRecordEvent(t *testing.T) {
	f := New(nil)
	toy := &ferrule.Device{ID: "toy", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}
	pending := &ferrule.Device{ID: "pending", State: ferrule.StateOnline, Trust: ferrule.TrustPending}
	f.Put(toy, nil, nil)
	f.Put(pending, nil, nil)
	for _, e := range []ferrule.Event{
		notified("toy", "state", "1"), notified("toy", "battery", "2"), notified("toy", "state", "3"),
		{Type: ferrule.Gone, Device: "toy"}, notified("pending", "state", "4"), notified("nobody", "state", "5"),
	} {
		f.RecordEvent(e)
	}
	if got := f.Notifications("toy"); len(got) != 2 || got[0].Method != "state" || string(got[0].Params) != "3" || string(got[1].Params) != "2" {
		t.Errorf("got %+v", got)
	}
	if f.Notifications("pending") != nil || f.Notifications("nobody") != nil {
		t.Error("a notification of a pending or unknown device was stored")
	}
	f.PutRemote(toy, nil, nil)
	f.Remove("toy")
	if f.Notifications("toy") == nil {
		t.Error("notifications of a device that moved to another node were dropped")
	}
	f.RemoveRemote("toy")
	if f.Notifications("toy") != nil || f.notifications.size != 0 {
		t.Error("notifications of a removed device are still stored")
	}
}

// TestMaxNotifications checks the memory limit and that the most recent device stays.
func TestMaxNotifications(t *testing.T) {
	n := newNotifications()
	long := strings.Repeat("x", ferrule.MaxParams)
	for i := range 1000 {
		for method := range 2 * maxMethods {
			n.add(notified(fmt.Sprint(i), fmt.Sprint(method), long))
		}
	}
	if got := n.get("999"); len(got) != maxMethods || got[0].Method != fmt.Sprint(2*maxMethods-1) {
		t.Errorf("%d are stored", len(got))
	}
	size := 0
	for at := n.order.Front(); at != nil; at = at.Next() {
		size += at.Value.(*notifier).size()
	}
	if size != n.size || size > maxNotifications || size < maxNotifications/2 || len(n.devices) != n.order.Len() || n.get("0") != nil {
		t.Errorf("%d bytes of %d devices, counted as %d", size, len(n.devices), n.size)
	}
}
