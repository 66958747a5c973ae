package doctor

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
)

// TestHomesUnreachable: what is wrong with a Home Assistant is named.
func TestHomesUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := listener.Addr().String()
	listener.Close()
	dir := quietConfig(t)
	file, absent := filepath.Join(dir, "ferrule.yaml"), filepath.Join(dir, "absent")
	if err := os.WriteFile(file, fmt.Appendf(nil, "devices: {homeassistant: [{url: 'http://%s', file: %s}]}\n", closed, absent), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &Doctor{file: file}
	wantLines(t, "closed", d.homeAssistants(t.Context()),
		"wrong reach: Home Assistant home at http://"+closed+": nothing listens at "+closed,
		"wrong token: Home Assistant home at http://"+closed+": there is no token in "+absent,
	)
	d.gateway.status = builtin.StatusOutput{Homes: []string{"Home Assistant home at http://h refused the access token"}}
	wantLines(t, "refused", d.homes(t.Context()), "wrong homes: Home Assistant home at http://h refused the access token")
}

// TestHomes: a real Home Assistant is reached.
func TestHomes(t *testing.T) {
	home := homeassistant.Start(t, homeassistant.Options{Bare: true})
	dir := quietConfig(t)
	file := filepath.Join(dir, "ferrule.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "devices: {homeassistant: [{url: '%s', token: %s}]}\n", home.URL, home.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	wantLines(t, "reached", (&Doctor{file: file}).homeAssistants(t.Context()), "fine reach: Home Assistant home at "+home.URL+" answers, with version 20")
}
