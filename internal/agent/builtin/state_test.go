package builtin_test

import (
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// talkative is a fleet with one device that sent a notification.
type talkative struct{ fleetOf }

var saidAt = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

func (talkative) Notifications(id string) []ferrule.Event {
	if id != "a" {
		return nil
	}
	return []ferrule.Event{
		{Type: ferrule.Notified, Device: "a", Time: saidAt, Method: "state", Params: []byte(`{"new":1}`)},
		{Type: ferrule.Notified, Device: "a", Time: saidAt, Method: "battery"},
	}
}

// TestDeviceState checks state and notifications; those of a pending device are for people.
func TestDeviceState(t *testing.T) {
	b := newSet(t, builtin.DeviceState(talkative{someDevices()}, nil))
	var out builtin.DeviceStateOutput
	if err := call(t, b, ferrule.Agent, "device_state", `{"device":"a"}`, &out); err != nil {
		t.Fatal(err)
	}
	if out.State != "online" || len(out.Notifications) != 2 || out.Notifications[0].Method != "state" || string(out.Notifications[0].Params) != `{"new":1}` || !out.Notifications[0].Time.Equal(saidAt) {
		t.Errorf("got %+v", out)
	}
	out = builtin.DeviceStateOutput{}
	if err := call(t, b, ferrule.Agent, "device_state", `{"device":"c"}`, &out); err != nil || out.State != "offline" || out.Reason != "gone" || out.Notifications == nil {
		t.Errorf("got %+v, %v", out, err)
	}
	if err := call(t, b, ferrule.Agent, "device_state", `{"device":"b"}`, &out); ferrule.AsError(err).Code != ferrule.NotFound {
		t.Errorf("an agent is told of a held device: %v", err)
	}
	if err := call(t, b, ferrule.Person, "device_state", `{"device":"b"}`, &out); err != nil {
		t.Error(err)
	}
}
