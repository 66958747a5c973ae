package gateway

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/xiaozhi/provision"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestDialInLog checks that repeated requests with the address of a known device do not
// fill the log: only the first are logged.
func TestDialInLog(t *testing.T) {
	for _, activation := range []bool{false, true} {
		t.Run(fmt.Sprint("activation ", activation), func(t *testing.T) {
			var log bytes.Buffer
			d, err := listenDialIn(config.DialIn{Listen: "127.0.0.1:0", Devices: 1000, PerHost: 1000, Activation: activation}, t.TempDir(), slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer d.close()
			if err := d.credentials.Admit(provision.Identity{Address: "02:00:00:00:00:01", ClientID: "the-device"}); err != nil {
				t.Fatal(err)
			}
			for i := range 200 {
				body := fmt.Sprintf(`{"mac_address":"02:00:00:00:00:01","uuid":"thief-%d"}`, i)
				r := httptest.NewRequest(http.MethodPost, otaPath, strings.NewReader(body))
				d.handler.ServeHTTP(httptest.NewRecorder(), r)
			}
			if n := strings.Count(log.String(), "02:00:00:00:00:01"); n < 5 || n > 20 {
				t.Errorf("%d lines: %s", n, log.String())
			}
		})
	}
}

// TestUsableURLs checks that no URL is shown that its readers cannot use.
func TestUsableURLs(t *testing.T) {
	for _, at := range []string{"[::]:0", "0.0.0.0:0"} {
		ln, err := net.Listen("tcp", at)
		if err != nil {
			t.Skip(err)
		}
		defer ln.Close()
		got := (&Gateway{web: ln}).URL()
		u, err := url.Parse(got)
		if ip := net.ParseIP(u.Hostname()); err != nil || u.Port() == "" || ip != nil && ip.IsUnspecified() {
			t.Errorf("%s: got %s, %v", at, got, err)
		}
	}
	for ota, usable := range map[string]bool{
		"http://192.168.1.10:3380/xiaozhi/ota/": true, "http://hub.local:3380/xiaozhi/ota/": true,
		"http://127.0.0.1:3380/xiaozhi/ota/": false, "http://[::1]:3380/xiaozhi/ota/": false, "http://localhost:3380/xiaozhi/ota/": false,
	} {
		if text := invitation(ota); strings.Contains(text, "on the device's Wi-Fi page") != usable || !usable && !strings.Contains(text, "--device-listen 0.0.0.0:3380") {
			t.Errorf("%s: got %s", ota, text)
		}
	}
}
