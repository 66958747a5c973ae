//go:build unix

package hass

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/figure"
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
			before, start, used := heap(), time.Now(), cpu(t)
			w := watch(t, broker, HubConfig{})
			wait.For(t, "all devices are reported", func() bool { return len(w.addresses()) >= w.Status().Devices })
			took, first := time.Since(start), w.countConfigs()
			used = cpu(t) - used
			// What the broker dropped is read again.
			wait.For(t, "all configs are read", func() bool { return w.countConfigs() == len(topics) })
			size := (heap() - before) / devices
			fmt.Printf("%s: %d of %d configs at first, in %v with %v of CPU time; all after %v; %d bytes for each of %d devices\n",
				name, first, len(topics), took.Round(time.Millisecond), used.Round(time.Millisecond), time.Since(start).Round(time.Millisecond), size, devices)
			if status := w.Status(); status.Refused != 2 || status.Devices != devices || status.Entities != len(topics) {
				t.Errorf("the status is %+v", status)
			}
			figure.AtMost(t, name+": CPU time", used, 30*time.Second)
			figure.AtMost(t, name+": bytes for each device", size, 4096)
			if name == "unlimited" {
				w.checkTopics(t)
			}
			runtime.KeepAlive(w)
		})
	}
}

// checkTopics checks that no device but the bridge is refused one of its command topics.
func (w *watched) checkTopics(t *testing.T) {
	t.Helper()
	commands := 0
	for _, address := range w.addresses() {
		l, err := w.openPresent(address)
		if err != nil {
			t.Fatal(err)
		}
		terms := l.(*link).terms
		l.Close()
		commands += len(terms.offer.Topics)
		for topic, reason := range terms.offer.Topics {
			if ofBridge := strings.Contains(address, "bridge"); (reason == heldBridge) != ofBridge || reason != "" && !ofBridge {
				t.Errorf("%s: %s: %s", address, topic, reason)
			}
		}
		if len(terms.refused) > 0 {
			t.Errorf("%s may not be heard on %v", address, terms.refused)
		}
	}
	fmt.Printf("%d command topics\n", commands)
}

// cpu returns the processor time that this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func (w *watched) countConfigs() int {
	w.Hub.mu.Lock()
	defer w.Hub.mu.Unlock()
	return len(w.byConfig)
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
