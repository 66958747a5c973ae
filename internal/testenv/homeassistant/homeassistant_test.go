package homeassistant_test

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
)

func TestHomeAssistant(t *testing.T) {
	home := homeassistant.Start(t, homeassistant.Options{})
	if state, _ := home.State(t, "light.bed_light"); state != "off" {
		t.Errorf("the light is %s", state)
	}
	home.Stop(t)
	home.Restart(t)
	if state, _ := home.State(t, "lock.front_door"); state != "locked" {
		t.Errorf("the lock is %s", state)
	}
}
