package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func said(device, method, params string) ferrule.Event {
	return ferrule.Event{Type: ferrule.Notified, Device: device, Method: method, Params: []byte(params)}
}

// TestSaid: of each device the last things that it said are known, by its own words for
// them, as long as it is known itself and not held.
func TestSaid(t *testing.T) {
	f := New(nil)
	toy := &ferrule.Device{ID: "toy", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}
	held := &ferrule.Device{ID: "held", State: ferrule.StateOnline, Trust: ferrule.TrustPending}
	f.Put(toy, nil, nil)
	f.Put(held, nil, nil)
	for _, e := range []ferrule.Event{
		said("toy", "state", "1"), said("toy", "battery", "2"), said("toy", "state", "3"),
		{Type: ferrule.Gone, Device: "toy"}, said("held", "state", "4"), said("nobody", "state", "5"),
	} {
		f.RecordEvent(e)
	}
	if got := f.Said("toy"); len(got) != 2 || got[0].Method != "state" || string(got[0].Params) != "3" || string(got[1].Params) != "2" {
		t.Errorf("got %+v", got)
	}
	if f.Said("held") != nil || f.Said("nobody") != nil {
		t.Error("what nobody is told of is remembered")
	}
	f.PutRemote(toy, nil, nil)
	f.Remove("toy")
	if f.Said("toy") == nil {
		t.Error("a device that is elsewhere now has said nothing")
	}
	f.RemoveRemote("toy")
	if f.Said("toy") != nil || f.words.size != 0 {
		t.Error("what a device said that is forgotten is remembered")
	}
}

// TestSaidIsBounded: devices that say ever more, and ever more of them, take so much
// memory and no more; the one that spoke last is remembered.
func TestSaidIsBounded(t *testing.T) {
	w := newWords()
	long := strings.Repeat("x", ferrule.MaxParams)
	for i := range 1000 {
		for method := range 2 * maxMethods {
			w.add(said(fmt.Sprint(i), fmt.Sprint(method), long))
		}
	}
	if got := w.get("999"); len(got) != maxMethods || got[0].Method != fmt.Sprint(2*maxMethods-1) {
		t.Errorf("%d are remembered", len(got))
	}
	size := 0
	for at := w.order.Front(); at != nil; at = at.Next() {
		size += at.Value.(*speaker).size()
	}
	if size != w.size || size > maxWords || size < maxWords/2 || len(w.of) != w.order.Len() || w.get("0") != nil {
		t.Errorf("%d bytes of %d devices, counted as %d", size, len(w.of), w.size)
	}
}
