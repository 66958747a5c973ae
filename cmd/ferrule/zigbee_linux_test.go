package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/internal/testenv/zigbee"
)

// zigbeeHome is the real Zigbee2MQTT and a gateway on one broker. The policy and what is
// adopted are the defaults.
type zigbeeHome struct {
	*zigbee.Process
	*testGateway
}

func startZigbee(t *testing.T) *zigbeeHome {
	t.Helper()
	zigbee.Dir(t)
	broker := mosquitto.Start(t, mosquitto.Options{})
	h := &zigbeeHome{Process: zigbee.Start(t, broker)}
	h.testGateway = startGateway(t, nil, func(c *config.Config) {
		c.Devices.MQTT = []config.Broker{{URL: broker.URL, Name: "house", Adopt: "sensors", Prefix: "homeassistant"}}
		c.Calls.PerMinute = 0
	})
	for _, device := range []string{"plug", "lamp", "door", "blind", "heating", "contact"} {
		h.online(device)
	}
	return h
}

// join pairs a device while the gateway runs, and returns it with its ID.
func (h *zigbeeHome) join(kind, tool string) (zigbee.Device, string) {
	h.t.Helper()
	joined := h.Pair(h.t, kind)
	wait.For(h.t, kind+" is found with "+tool, func() bool {
		dev, m, ok := h.Fleet.Lookup(joined.Address)
		return ok && dev.State == ferrule.StateOnline && slices.ContainsFunc(m.Tools, func(t ferrule.Tool) bool { return t.Name == tool })
	})
	return joined, joined.Address
}

// confirmed calls a tool through an agent. The state of the device must confirm it.
func (h *zigbeeHome) confirmed(agent *testAgent, tool, args string) echoed {
	h.t.Helper()
	var got echoed
	if agent.mustUse(tool, args, &got); !got.Confirmed {
		h.t.Errorf("%s: %s %s: %+v", agent.name, tool, args, got)
	}
	return got
}

// started calls a tool through an agent and returns its outcome later.
func (h *zigbeeHome) started(agent *testAgent, tool, args string) <-chan *agentOutcome {
	told := make(chan *agentOutcome, 1)
	go func() {
		outcome, err := agent.use(h.t.Context(), tool, args)
		if err != nil {
			h.t.Errorf("%s: %s: %v", agent.name, tool, err)
		}
		told <- outcome
	}()
	return told
}

// received reports how often a device got a command over the radio.
func (h *zigbeeHome) received(device, command string) (n int) {
	for _, got := range h.Got(device) {
		if got == command {
			n++
		}
	}
	return n
}

// TestZigbee pairs a lamp, a lock and a blind while the gateway runs. They wait until a
// person adopts them. They are renamed in Zigbee2MQTT, and agents use each of them.
func TestZigbee(t *testing.T) {
	h := startZigbee(t)
	lamp, lampID := h.join("lamp", "light")
	lock, lockID := h.join("lock", "lock_unlock")
	blind, blindID := h.join("blind", "cover_position")
	agents := []*testAgent{dialAgent(t, h.testGateway, modern, "/mcp"), pipeAgent(t, h.testGateway, legacy)}
	for _, id := range []string{lampID, lockID, blindID} {
		if dev := h.device(id); dev.Trust != ferrule.TrustPending || agents[0].lists(id+"__") {
			t.Errorf("%s is %s before it is adopted", id, dev.Trust)
		}
		h.adopt(id)
	}
	if trust := h.device("contact").Trust; trust != ferrule.TrustAdopted {
		t.Errorf("the contact is %s", trust)
	}
	for id, name := range map[string]string{lampID: "Desk lamp", lockID: "cellar/door", blindID: "Jalousie im Büro"} {
		h.Rename(t, id, name)
		wait.For(t, id+" has its new name", func() bool {
			dev := h.device(id)
			return dev.Title == name && dev.State == ferrule.StateOnline && dev.Trust == ferrule.TrustAdopted
		})
	}
	for _, agent := range agents {
		h.confirmed(agent, lampID+"__light", `{"on":true,"brightness":100}`)
		h.confirmed(agent, lampID+"__light", `{"color":{"x":0.3,"y":0.4}}`)
		h.confirmed(agent, lampID+"__light", `{"on":false}`)
		h.confirmed(agent, lockID+"__lock", `{}`)
		before := h.received(lock.Name, "closuresDoorLock unlockDoor")
		told := h.started(agent, lockID+"__lock_unlock", `{}`)
		wait.For(t, "unlocking waits for approval", func() bool { return len(h.Approvals.List()) == 1 })
		if h.received(lock.Name, "closuresDoorLock unlockDoor") != before {
			t.Error("the door was unlocked before somebody approved it")
		}
		h.answers(true)
		if outcome := <-told; outcome == nil || outcome.isError || !strings.Contains(outcome.text, `"confirmed":true`) {
			t.Errorf("%s: unlocking: %+v", agent.name, outcome)
		}
		if n := h.received(lock.Name, "closuresDoorLock unlockDoor"); n != before+1 {
			t.Errorf("the lock was told %d times to unlock", n-before)
		}
		h.rests(agent, blindID, 40)
		h.rests(agent, blindID, 100)
	}
	if got := h.Got(lamp.Name); len(got) == 0 || len(h.Got(blind.Name)) != 2*len(agents) {
		t.Errorf("the lamp got %q, the blind %q", got, h.Got(blind.Name))
	}
	h.Remove(t, "Desk lamp")
	wait.For(t, "the removed lamp is gone", func() bool {
		dev := h.device(lampID) // it stays adopted, in case that it comes back
		return dev.State == ferrule.StateOffline && dev.Reason == "no longer reported by house"
	})
	if outcome := <-h.started(agents[0], lampID+"__light", `{"on":true}`); outcome == nil || outcome.code != ferrule.Offline || outcome.mayHaveRun {
		t.Errorf("a removed lamp: %+v", outcome)
	}
	h.Remove(t, "plug")
	wait.For(t, "the removed plug is not listed", func() bool { return h.device("plug").ID == "" })
}

// rests moves a blind. When the call ends, the blind is there.
func (h *zigbeeHome) rests(agent *testAgent, id string, position int) {
	h.t.Helper()
	args, _ := json.Marshal(map[string]int{"position": position})
	h.confirmed(agent, id+"__cover_position", string(args))
	text, _ := h.Last("zigbee2mqtt/" + h.device(id).Title)
	var state struct{ Position int }
	if json.Unmarshal([]byte(text), &state) != nil || state.Position != position {
		h.t.Errorf("the blind is still moving to %d: %s", position, text)
	}
}

// unanswered checks that a call has exactly this outcome: it may have run.
func (h *zigbeeHome) unanswered(what string, outcome *agentOutcome) {
	h.t.Helper()
	if outcome == nil || outcome.code != ferrule.Unanswered || !outcome.mayHaveRun {
		h.t.Errorf("%s: %+v", what, outcome)
	}
}

// unfinished checks that a call says that it was sent, and not that the blind is there.
func (h *zigbeeHome) unfinished(what string, outcome *agentOutcome) {
	h.t.Helper()
	if outcome == nil || strings.Contains(outcome.text, `"confirmed":true`) || outcome.isError && !outcome.mayHaveRun ||
		!outcome.isError && !strings.Contains(outcome.text, "still changing when the connection broke") {
		h.t.Errorf("%s: %+v", what, outcome)
	}
}

// TestZigbeeMisbehaving uses devices that do not report, do not answer, or refuse. None of
// them gets a command twice.
func TestZigbeeMisbehaving(t *testing.T) {
	h := startZigbee(t)
	agent := dialAgent(t, h.testGateway, modern, "/mcp")
	for _, device := range []string{"plug", "lamp", "door"} {
		h.adopt(device)
	}
	h.Silent(t, "lamp")
	h.unanswered("a silent lamp", <-h.started(agent, "lamp__light", `{"on":true}`))
	h.Refuse(t, "plug")
	h.unanswered("a plug that refuses", <-h.started(agent, "plug__switch", `{"on":true}`))
	h.Mute(t, "door")
	h.unanswered("a lock that does not report", <-h.started(agent, "door__lock", `{}`))
	for device, command := range map[string]string{"lamp": "genOnOff on", "plug": "genOnOff on", "door": "closuresDoorLock lockDoor"} {
		if got := h.Got(device); len(got) != 1 || got[0] != command {
			t.Errorf("%s got %q", device, got)
		}
		h.Normal(t, device)
	}
	h.confirmed(agent, "lamp__light", `{"on":true}`)
	h.confirmed(agent, "plug__switch", `{"on":true}`)
	h.confirmed(agent, "door__lock", `{}`)
}

// TestZigbeeGone kills Zigbee2MQTT during a call, stops it in good order, and removes a
// device during a call. Each call has one outcome, and each command runs at most once.
func TestZigbeeGone(t *testing.T) {
	h := startZigbee(t)
	agent := pipeAgent(t, h.testGateway, modern)
	for _, device := range []string{"lamp", "blind"} {
		h.adopt(device)
	}
	h.confirmed(agent, "blind__cover_position", `{"position":90}`)
	const move = "closuresWindowCovering goToLiftPercentage"
	told := h.started(agent, "blind__cover_position", `{"position":0}`)
	wait.For(t, "the blind moves", func() bool { return h.received("blind", move) == 2 })
	h.Kill()
	h.unfinished("Zigbee2MQTT was killed", <-told)
	h.Restart(t)
	h.online("blind")
	h.confirmed(agent, "blind__cover_position", `{"position":50}`)
	if n := h.received("blind", move); n != 3 {
		t.Errorf("the blind was moved %d times", n)
	}

	h.Stop()
	wait.For(t, "the lamp is offline", func() bool { return h.device("lamp").State == ferrule.StateOffline })
	told = h.started(agent, "lamp__light", `{"on":true}`)
	if outcome := <-told; outcome == nil || outcome.code != ferrule.Offline || !strings.Contains(outcome.text, "Zigbee2MQTT") {
		t.Errorf("without Zigbee2MQTT: %+v", outcome)
	}
	h.Restart(t)
	h.online("lamp")
	if got := h.Got("lamp"); len(got) != 0 {
		t.Errorf("the lamp got %q", got)
	}
	h.confirmed(agent, "lamp__light", `{"on":true}`)

	before := h.received("lamp", "genOnOff off")
	h.Rename(t, "lamp", "Reading lamp")
	outcome := <-h.started(agent, "lamp__light", `{"on":false}`) // its topics are just changing
	if outcome == nil || !outcome.isError && !strings.Contains(outcome.text, `"confirmed":true`) {
		t.Errorf("right after renaming: %+v", outcome)
	} else if n := h.received("lamp", "genOnOff off") - before; n > 1 || n == 1 && outcome.isError && !outcome.mayHaveRun {
		t.Errorf("right after renaming: %+v, and the lamp got %d commands", outcome, n)
	}
	wait.For(t, "the lamp has its new name", func() bool { return h.device("lamp").Title == "Reading lamp" })
	h.online("lamp")
	h.confirmed(agent, "lamp__light", `{"on":true}`)

	told = h.started(agent, "blind__cover_position", `{"position":100}`)
	wait.For(t, "the blind moves", func() bool { return h.received("blind", move) == 4 })
	h.Remove(t, "blind")
	h.unfinished("the blind was removed", <-told)
	wait.For(t, "the removed blind is gone", func() bool { return h.device("blind").State != ferrule.StateOnline })
	if n := h.received("blind", move); n != 4 {
		t.Errorf("the blind was moved %d times", n)
	}
}
