//go:build unix

package zigbee

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// Configs is how many discovery messages the six devices of a new home and the bridge have.
// The devices are plug, lamp, door (a lock), blind, heating and contact.
const Configs = 51

// startTime is an ample time for a start. Zigbee2MQTT itself waits for 5 s.
const startTime = 5 * time.Minute

// Process is a running Zigbee2MQTT. Its devices are simulated.
type Process struct {
	broker *mosquitto.Broker
	login  []string // arguments for the programs of Mosquitto
	env    []string
	dir    string

	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{}

	mu      sync.Mutex
	output  []string
	answers []string          // of the radio
	got     []string          // commands that devices got
	last    map[string]string // payloads by topic
	started int               // how often the program started
	request int               // the number of the last request
}

// Start runs Zigbee2MQTT until the test ends, and waits until it has published all
// discovery messages. A login is the user and password for the broker.
func Start(t testing.TB, broker *mosquitto.Broker, login ...string) *Process {
	t.Helper()
	p := &Process{broker: broker, dir: Dir(t), last: map[string]string{}}
	p.env = append(os.Environ(), "ZIGBEE2MQTT_DATA="+t.TempDir(), "BROKER="+broker.URL,
		"GIT_DIR="+os.DevNull) // it would build itself again for the commit of this tree
	if len(login) == 2 {
		p.login = []string{"-u", login[0], "-P", login[1]}
		p.env = append(p.env, "MQTT_USER="+login[0], "MQTT_PASSWORD="+login[1])
	}
	p.watch(t)
	p.start(t)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Logf("Zigbee2MQTT printed:\n%s", strings.Join(p.output, "\n"))
		}
	})
	wait.Within(t, startTime, "Zigbee2MQTT publishes its discovery messages", func() bool { return len(p.Topics("/")) >= Configs })
	return p
}

// start runs the program and waits until it has started. It says earlier that it is online,
// but ignores commands then.
func (p *Process) start(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	before := p.started
	p.mu.Unlock()
	p.cmd = exec.Command("node", "-r", filepath.Join(p.dir, "radio.cjs"), filepath.Join(p.dir, "node_modules", "zigbee2mqtt", "index.js"))
	p.cmd.Env = p.env
	p.done = make(chan struct{})
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read(p.cmd, out, p.done)
	wait.Within(t, startTime, "Zigbee2MQTT starts", func() bool {
		select {
		case <-p.done:
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Fatalf("Zigbee2MQTT ended:\n%s", strings.Join(p.output, "\n"))
		default:
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.started > before
	})
}

// read keeps what the program prints.
func (p *Process) read(cmd *exec.Cmd, out io.Reader, done chan struct{}) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.mu.Lock()
		if text, found := strings.CutPrefix(lines.Text(), "radio: "); found {
			p.answers = append(p.answers, text)
		} else if text, found := strings.CutPrefix(lines.Text(), "radio got: "); found {
			p.got = append(p.got, text)
		} else if strings.HasSuffix(lines.Text(), "Zigbee2MQTT started!") {
			p.started++
		}
		p.output = append(p.output, lines.Text())
		p.mu.Unlock()
	}
	cmd.Wait()
	close(done)
}

// watch keeps what is published on the broker, as a client of its own.
func (p *Process) watch(t testing.TB) {
	t.Helper()
	host, port, _ := strings.Cut(p.broker.Address, ":")
	args := append([]string{"-h", host, "-p", port, "-F", "%j", "-t", "zigbee2mqtt/#", "-t", "homeassistant/#"}, p.login...)
	cmd := exec.Command(mosquitto.Path(t, "mosquitto_sub"), args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var m struct{ Topic, Payload string }
			if json.Unmarshal(lines.Bytes(), &m) != nil {
				continue
			}
			p.mu.Lock()
			p.last[m.Topic] = m.Payload
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-done
		cmd.Wait()
	})
}

// Stop ends the process in good order: it says that it is offline.
func (p *Process) Stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.done
}

// Kill ends the process at once. It may be called more than once.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// Restart starts the process again, after Stop or Kill, with the devices that it has, and
// waits until it takes commands.
func (p *Process) Restart(t testing.TB) {
	t.Helper()
	p.start(t)
}

// Last returns what was published on a topic last. It reports false for nothing, and for an
// empty payload.
func (p *Process) Last(topic string) (payload string, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	payload = p.last[topic]
	return payload, payload != ""
}

// Topics returns the topics of present discovery messages that contain a text, for example
// the address of a device, sorted.
func (p *Process) Topics(part string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var topics []string
	for topic, payload := range p.last {
		if payload != "" && strings.HasPrefix(topic, "homeassistant/") && strings.HasSuffix(topic, "/config") && strings.Contains(topic, part) {
			topics = append(topics, topic)
		}
	}
	slices.Sort(topics)
	return topics
}

// Got returns the commands that a device got over the radio, for example "genOnOff on",
// since the first start.
func (p *Process) Got(name string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var commands []string
	for _, line := range p.got {
		if command, found := strings.CutPrefix(line, name+" "); found {
			commands = append(commands, command)
		}
	}
	return commands
}

// Silent makes a device ignore everything. Devices keep the names of the first start here,
// whatever Zigbee2MQTT calls them. A restart ends this.
func (p *Process) Silent(t testing.TB, name string) { t.Helper(); p.radio(t, "silent "+name) }

// Mute makes a device obey and answer without reporting its state.
func (p *Process) Mute(t testing.TB, name string) { t.Helper(); p.radio(t, "mute "+name) }

// Refuse makes a device answer with a failure.
func (p *Process) Refuse(t testing.TB, name string) { t.Helper(); p.radio(t, "refuse "+name) }

// Normal ends Silent, Mute and Refuse.
func (p *Process) Normal(t testing.TB, name string) { t.Helper(); p.radio(t, "normal "+name) }

// Toggle opens or closes a contact, as a person does.
func (p *Process) Toggle(t testing.TB, name string) { t.Helper(); p.radio(t, "toggle "+name) }

// Measure makes a device report a value, for example hvacThermostat, localTemp, 2150.
func (p *Process) Measure(t testing.TB, name, cluster, attribute string, value int) {
	t.Helper()
	if answer := p.radio(t, fmt.Sprintf("measure %s %s %s %d", name, cluster, attribute, value)); answer != "measure "+name {
		t.Fatal(answer)
	}
}

// Device is a device that joined. Name is that of the radio. Zigbee2MQTT calls it by its
// address until it is renamed.
type Device struct{ Name, Address string }

// Pair lets a new device join: plug, lamp, lock, blind, heating or contact. It waits until
// the first discovery message of the device is published.
func (p *Process) Pair(t testing.TB, kind string) Device {
	t.Helper()
	p.Request(t, "permit_join", map[string]any{"time": 120})
	answer := strings.Fields(p.radio(t, "join "+kind))
	if len(answer) != 3 {
		t.Fatalf("joining: %s", answer)
	}
	joined := Device{answer[1], answer[2]}
	wait.Within(t, startTime, "the new device is published", func() bool { return len(p.Topics(joined.Address)) > 0 })
	p.Request(t, "permit_join", map[string]any{"time": 0})
	return joined
}

// Rename gives a device another name in Zigbee2MQTT, also in the topics of its states.
func (p *Process) Rename(t testing.TB, from, to string) {
	t.Helper()
	p.Request(t, "device/rename", map[string]any{"from": from, "to": to})
}

// Remove removes a device from Zigbee2MQTT, by its name there.
func (p *Process) Remove(t testing.TB, name string) {
	t.Helper()
	p.Request(t, "device/remove", map[string]any{"id": name})
}

// Request sends a request to Zigbee2MQTT on its own topics, and waits until it is done.
func (p *Process) Request(t testing.TB, name string, request map[string]any) {
	t.Helper()
	p.mu.Lock()
	p.request++
	id := strconv.Itoa(p.request)
	p.mu.Unlock()
	request["transaction"] = id
	payload, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	p.broker.Publish(t, "zigbee2mqtt/bridge/request/"+name, string(payload), p.login...)
	var response struct{ Status, Error, Transaction string }
	wait.Within(t, startTime, name+" is answered", func() bool {
		text, _ := p.Last("zigbee2mqtt/bridge/response/" + name)
		return json.Unmarshal([]byte(text), &response) == nil && response.Transaction == id
	})
	if response.Status != "ok" {
		t.Fatalf("%s: %s", name, response.Error)
	}
}

// radio sends a line to the radio and returns its answer.
func (p *Process) radio(t testing.TB, line string) (answer string) {
	t.Helper()
	p.mu.Lock()
	before := len(p.answers)
	p.mu.Unlock()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the radio answers", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.answers) > before {
			answer = p.answers[before]
		}
		return answer != ""
	})
	if strings.HasPrefix(answer, "no") && !strings.HasPrefix(answer, "normal") {
		t.Fatalf("%s: %s", line, answer)
	}
	return answer
}
