package mqtt_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// mosquitto returns a command of mosquitto-clients that connects to the gateway with
// the credential of a client ID.
func (g *gateway) mosquitto(t *testing.T, program, clientID string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("needs mosquitto-clients: ", err)
	}
	host, port, err := net.SplitHostPort(g.address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	t.Cleanup(cancel)
	args = slices.Concat([]string{"-h", host, "-p", port, "-i", clientID, "-u", "toy", "-P", clientID + " secret"}, args)
	return exec.CommandContext(ctx, path, args...)
}

// TestMosquittoSub: a program that subscribes to the topic of its device gets the
// messages to the device, with MQTT 3.1.1 and 5.
func TestMosquittoSub(t *testing.T) {
	for _, version := range []string{"311", "5"} {
		t.Run(version, func(t *testing.T) {
			g := start(t, passwords{}, nil)
			cmd := g.mosquitto(t, "mosquitto_sub", clientID, "-V", version, "-v", "-C", "2", "-t", "devices/p2p/98_a3_16_f9_d9_34")
			got := make(chan string, 1)
			go func() {
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("mosquitto_sub: %v: %s", err, out)
				}
				got <- string(out)
			}()
			link := opened(t, g.sighting(t))
			for _, text := range []string{`{"n":1}`, `{"n":2}`} {
				if err := link.Send(t.Context(), transport.Message{Data: []byte(text)}); err != nil {
					t.Fatal(err)
				}
			}
			const want = "devices/p2p/98_a3_16_f9_d9_34 {\"n\":1}\ndevices/p2p/98_a3_16_f9_d9_34 {\"n\":2}\n"
			if out := <-got; out != want {
				t.Errorf("got %q", out)
			}
			ends(t, link, "closed the connection")
		})
	}
}

// TestMosquittoPub: a published message arrives on the link of its device, with any
// QoS.
func TestMosquittoPub(t *testing.T) {
	for _, qos := range []string{"0", "1", "2"} {
		t.Run(qos, func(t *testing.T) {
			g := start(t, passwords{}, nil)
			cmd := g.mosquitto(t, "mosquitto_pub", clientID, "-V", "311", "-q", qos, "-r", "-t", "device-server", "-m", `{"type":"hello"}`)
			ended := make(chan error, 1)
			go func() {
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Logf("mosquitto_pub: %s", out)
				}
				ended <- err
			}()
			link := opened(t, g.sighting(t))
			recv(t, link, `{"type":"hello"}`)
			ends(t, link, "closed the connection")
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMosquittoIsolation: no device gets the messages, retained messages or wills of
// another.
func TestMosquittoIsolation(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	g := start(t, passwords{}, nil)
	sub := g.mosquitto(t, "mosquitto_sub", otherID, "-V", "311", "-W", "3", "-t", "#", "-t", "$SYS/#", "--will-topic", "w", "--will-payload", "w")
	got := make(chan string, 1)
	go func() {
		out, _ := sub.CombinedOutput() // it ends by its own timeout
		got <- string(out)
	}()
	opened(t, g.sighting(t))
	dying := g.mosquitto(t, "mosquitto_sub", clientID, "-V", "311", "-t", "a", "--will-topic", "a", "--will-payload", "dead", "--will-retain")
	if err := dying.Start(); err != nil {
		t.Fatal(err)
	}
	link := opened(t, g.sighting(t))
	dying.Process.Kill()
	dying.Wait()
	ends(t, link, "")
	pub := g.mosquitto(t, "mosquitto_pub", clientID, "-V", "311", "-r", "-t", "a", "-m", "private")
	if err := pub.Start(); err != nil {
		t.Fatal(err)
	}
	recv(t, opened(t, g.sighting(t)), "private")
	pub.Wait()
	if out := <-got; strings.TrimSpace(strings.ReplaceAll(out, "Timed out", "")) != "" {
		t.Errorf("another device got %q", out)
	}
}

// TestMosquittoRefused: a revoked credential is refused.
func TestMosquittoRefused(t *testing.T) {
	g := start(t, passwords{revoked: clientID + " secret"}, nil)
	out, err := g.mosquitto(t, "mosquitto_pub", clientID, "-V", "311", "-t", "a", "-m", "b").CombinedOutput()
	if err == nil || !strings.Contains(strings.ToLower(string(out)), "refused") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestMosquittoReplaced: a second program with the same client ID replaces the first.
func TestMosquittoReplaced(t *testing.T) {
	g := start(t, passwords{}, nil)
	first := g.mosquitto(t, "mosquitto_sub", clientID, "-V", "311", "-t", "a")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer first.Wait()
	defer first.Process.Kill()
	link := opened(t, g.sighting(t))
	second := g.mosquitto(t, "mosquitto_pub", clientID, "-V", "311", "-t", "a", "-m", "second")
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	recv(t, opened(t, g.sighting(t)), "second")
	ends(t, link, "reconnected")
	if err := second.Wait(); err != nil {
		t.Error(err)
	}
}
