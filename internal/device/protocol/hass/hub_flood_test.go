//go:build unix

package hass

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/internal/testenv/zigbee"
)

// devices is how many devices the corpus has, with the bridge.
const devices = 4479

// TestFlood: all configs of all devices that Zigbee2MQTT supports are read at once, also
// from a broker that drops messages, and every device may use its own command topics.
func TestFlood(t *testing.T) {
	corpus := zigbee.Corpus(t)
	topics := make(map[string]bool)
	for _, m := range corpus {
		if !strings.Contains(m.Topic, " ") { // two have invalid object IDs
			topics[m.Topic] = true
		}
	}
	for name, lines := range map[string][]string{"default": nil, "unlimited": {"max_queued_messages 0"}} {
		t.Run(name, func(t *testing.T) {
			broker := mosquitto.Start(t, mosquitto.Options{Lines: lines})
			publishAll(t, broker, corpus)
			before := heap()
			start := time.Now()
			w := watch(t, broker, HubConfig{})
			read := time.Since(start)
			wait.For(t, wait.Ample, "all devices are reported", func() bool { return len(w.addresses()) >= w.Status().Devices })
			took, status := time.Since(start), w.Status()
			size := (heap() - before) / uint64(max(status.Devices, 1))
			w.Hub.mu.Lock()
			packed := w.size / max(status.Devices, 1)
			w.Hub.mu.Unlock()
			first := w.countConfigs()
			fmt.Printf("%s: %d of %d configs, %d devices, read in %v, reported in %v, %d bytes a device, configs %d; %+v\n",
				name, first, len(topics), status.Devices, read.Round(time.Millisecond), took.Round(time.Millisecond), size, packed, status)
			// What the broker dropped is read again.
			wait.For(t, 12*wait.Ample, "all configs are read", func() bool { return w.countConfigs() == len(topics) })
			if status = w.Status(); status.Missing != 0 || status.Refused != 2 || status.Devices != devices {
				t.Errorf("the status is %+v", status)
			}
			if took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
			if size > 4096 {
				t.Errorf("a device takes %d bytes", size)
			}
			runtime.KeepAlive(w)
		})
	}
}

func (w *watched) countConfigs() int {
	w.Hub.mu.Lock()
	defer w.Hub.mu.Unlock()
	return w.configs
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func publishAll(t *testing.T, broker *mosquitto.Broker, messages []zigbee.Message) {
	t.Helper()
	conn := connect(t, broker)
	var senders sync.WaitGroup
	next := make(chan zigbee.Message)
	for range 8 {
		senders.Go(func() {
			for m := range next {
				publish(t, conn, m.Topic, m.Payload, true)
			}
		})
	}
	for _, m := range messages {
		next <- m
	}
	next <- zigbee.Message{Topic: "zigbee2mqtt/bridge/state", Payload: `{"state":"online"}`}
	close(next)
	senders.Wait()
}

func goroutines() int { return runtime.NumGoroutine() }
