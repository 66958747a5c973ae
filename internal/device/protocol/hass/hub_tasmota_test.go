//go:build unix

package hass

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestTasmota: a device that describes itself as Tasmota does is found, and goes.
func TestTasmota(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, broker, HubConfig{Local: true})
	const at, mac = "home/tasmota_02005E0000B1", "tasmota/discovery/02005E0000B1/"
	config := `{"dn":"Washing machine","fn":["Washing machine"],"mac":"02005E0000B1","md":"Plug","ofln":"Offline","onln":"Online","state":["OFF","ON"],
		"sw":"15.0.1","t":"wash","ft":"%prefix%/%topic%/","tp":["cmnd","stat","tele"],"rl":[1,0],"so":{"26":0},"lt_st":0,"ver":1}`
	w.publish(mac+"config", config)
	w.publish(mac+"sensors", `{"sn":{"ENERGY":{"Power":3}},"ver":1}`)
	w.publish("tele/wash/LWT", "Online")
	s := w.available(at)
	if s.Title != "Washing machine" || s.Adopted || s.Sensor {
		t.Errorf("%+v is wrong", s)
	}
	_, o := w.open(at)
	if reason, listed := o.Topics["cmnd/wash/POWER1"]; !listed || reason != "" || len(o.Topics) != 1 {
		t.Errorf("command topics are %v", o.Topics)
	}
	w.publish(mac+"config", "")
	wait.For(t, "it is gone", func() bool { return w.Status().Devices == 0 })
}
