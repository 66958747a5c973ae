// Package mosquitto runs a real Mosquitto broker for tests.
package mosquitto

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Options change the broker from its defaults: no password, no persistence.
type Options struct {
	// Users are names with their passwords. If there are any, others are refused.
	Users map[string]string
	// ACL is the content of the access control list; empty for none.
	ACL string
	// Lines are added to the configuration.
	Lines []string
	// CA, Cert and Key are files for TLS; empty for plain TCP.
	CA, Cert, Key string
}

// Broker is a running broker.
type Broker struct {
	// Address is its host and port; URL has the scheme as well.
	Address, URL string
	config       string
	cmd          *exec.Cmd
	done         chan struct{}
}

// Start runs a broker on a free port of the loopback interface until the test ends. It
// skips the test if Mosquitto is not installed, unless CI is set.
func Start(t testing.TB, o Options) *Broker {
	t.Helper()
	program := Path(t, "mosquitto")
	dir := t.TempDir()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &Broker{Address: listener.Addr().String(), config: filepath.Join(dir, "mosquitto.conf")}
	b.URL = "mqtt://" + b.Address
	listener.Close()
	_, port, _ := net.SplitHostPort(b.Address)
	lines := []string{"per_listener_settings false", "listener " + port + " 127.0.0.1"}
	if os.Getuid() == 0 {
		lines = append(lines, "user root") // it could not read the files of the test otherwise
	}
	if o.Cert != "" {
		b.URL = "mqtts://" + b.Address
		lines = append(lines, "cafile "+o.CA, "certfile "+o.Cert, "keyfile "+o.Key)
	}
	lines = append(lines, fmt.Sprintf("allow_anonymous %t", len(o.Users) == 0))
	if len(o.Users) > 0 {
		file := filepath.Join(dir, "passwords")
		write(t, file, "")
		for name, password := range o.Users {
			if out, err := exec.Command(Path(t, "mosquitto_passwd"), "-b", file, name, password).CombinedOutput(); err != nil {
				t.Fatalf("mosquitto_passwd: %v: %s", err, out)
			}
		}
		lines = append(lines, "password_file "+file)
	}
	if o.ACL != "" {
		file := filepath.Join(dir, "acl")
		write(t, file, o.ACL)
		lines = append(lines, "acl_file "+file)
	}
	write(t, b.config, strings.Join(append(lines, o.Lines...), "\n")+"\n")
	b.start(t, program)
	t.Cleanup(b.Kill)
	return b
}

// Path returns the path of a program of Mosquitto. It skips the test if it is not
// installed, unless CI is set.
func Path(t testing.TB, name string) string {
	t.Helper()
	for _, path := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(path); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal(name + " is not installed")
	}
	t.Skip(name + " is not installed")
	return ""
}

// Restart starts the broker again on the same port, after Kill.
func (b *Broker) Restart(t testing.TB) {
	t.Helper()
	b.start(t, Path(t, "mosquitto"))
}

// Kill ends the broker at once, as a power cut does. It may be called more than once.
func (b *Broker) Kill() {
	b.cmd.Process.Kill()
	<-b.done
}

func (b *Broker) start(t testing.TB, program string) {
	t.Helper()
	b.cmd = exec.Command(program, "-c", b.config)
	var output strings.Builder
	b.cmd.Stdout, b.cmd.Stderr = &output, &output
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	b.done = done
	cmd := b.cmd
	go func() {
		cmd.Wait()
		close(done)
	}()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if conn, err := net.Dial("tcp", b.Address); err == nil {
			conn.Close()
			return
		}
		select {
		case <-done:
			t.Fatalf("mosquitto ended: %s", output.String())
		default:
		}
		if time.Now().After(end) {
			t.Fatal("mosquitto does not listen")
		}
	}
}

// Publish publishes a message with mosquitto_pub, a client of its own.
func (b *Broker) Publish(t testing.TB, topic, payload string, args ...string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(b.Address)
	args = append([]string{"-h", host, "-p", port, "-t", topic, "-s"}, args...)
	cmd := exec.Command(Path(t, "mosquitto_pub"), args...)
	cmd.Stdin = strings.NewReader(payload)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mosquitto_pub: %v: %s", err, out)
	}
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
