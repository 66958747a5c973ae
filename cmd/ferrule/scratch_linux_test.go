package main

import (
	"testing"
	"time"
	"fmt"

	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
)

func TestScratch(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	startHome(t, broker.URL, 4)
	cut := newCutter(t, broker.Address)
	g := startGateway(t, nil, withBroker("mqtt://"+cut.Addr().String()))
	g.online("lamp-1")
	n := 0
	measure := func(what string) {
		began := time.Now()
		last := ""
		for {
			n++
			_, err := g.call("lamp-1", "light", fmt.Sprintf(`{"brightness":%d}`, 1+n%250), 300*time.Millisecond)
			if err == nil {
				t.Logf("%s: works after %v", what, time.Since(began))
				time.Sleep(3*time.Second)
				return
			}
			if err.Error() != last {
				last = err.Error()
				t.Logf("%s: %v: %v [%s]", what, time.Since(began), err, g.device("lamp-1").Reason)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	measure("start")
	for range 2 {
	cut.cut(true)
	measure("cut")
	cut.hold()
	time.AfterFunc(2*time.Second, cut.release)
	measure("hold")
	broker.Pause()
	time.AfterFunc(500*time.Millisecond, broker.Resume)
	measure("pause")
	broker.Kill()
	broker.Restart(t)
	measure("kill")
	}
}
