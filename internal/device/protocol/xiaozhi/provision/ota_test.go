package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// fixed is an Issuer and an Admission with fixed results. It records the identities.
type fixed struct {
	credential Credential
	err        error
	code       string
	issued     []Identity
}

func (f *fixed) Issue(_ context.Context, id Identity) (Credential, error) {
	f.issued = append(f.issued, id)
	return f.credential, f.err
}

func (f *fixed) Code(context.Context, Identity) string { return f.code }

const usualRequest = `{"version":2,"language":"en-US","flash_size":16777216,"minimum_free_heap_size":"8318916","mac_address":"98:a3:16:f9:d9:34","uuid":"7b94d69a-9808-4c59-9c9b-704333b38aff",
"chip_model_name":"esp32s3","chip_info":{"model":9,"cores":2,"revision":2,"features":18},
"application":{"name":"xiaozhi","version":"2.4.2","compile_time":"Aug  8 2026T08:00:00Z","idf_version":"v6.0.1","elf_sha256":"00"},
"partition_table":[{"label":"nvs","type":1,"subtype":2,"address":36864,"size":16384}],"ota":{"label":"ota_0"},
"board":{"type":"bread-compact-wifi","name":"bread","ssid":"home","rssi":-55,"channel":6,"ip":"192.168.1.5","mac":"98:a3:16:f9:d9:34"}}`

// post sends a request as firmware does.
func post(t *testing.T, o *OTA, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	o.ServeHTTP(w, r)
	return w
}

// settings is the reply as a device decodes it.
type settings struct {
	ServerTime struct {
		Timestamp      int64 `json:"timestamp"`
		TimezoneOffset int   `json:"timezone_offset"`
	} `json:"server_time"`
	Firmware   struct{ Version, URL string }
	MQTT       map[string]any
	WebSocket  map[string]any
	Activation struct{ Code, Message string }
}

func read(t *testing.T, w *httptest.ResponseRecorder) (s settings) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return s
}

func newOTA(t *testing.T, cfg OTAConfig, f *fixed) *OTA {
	t.Helper()
	o, err := NewOTA(OTAParts{Config: cfg, Issuer: f, Admission: f})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

var both = OTAConfig{MQTT: "10.0.0.2:1883", WebSocket: "ws://10.0.0.2:8000/xiaozhi/v1/"}

// TestOTA: an admitted device gets the time, its own firmware version, where to connect
// and a credential.
func TestOTA(t *testing.T) {
	f := &fixed{credential: Credential{ClientID: "c", Username: "u", Password: "p", Token: "t"}}
	got := read(t, post(t, newOTA(t, both, f), "/xiaozhi/ota/", usualRequest,
		"Device-Id", "98:A3:16:f9:d9:34", "Client-Id", "7b94d69a-9808-4c59-9c9b-704333b38aff", "User-Agent", "bread-compact-wifi/2.4.2"))
	want := Identity{Address: "98:a3:16:f9:d9:34", ClientID: "7b94d69a-9808-4c59-9c9b-704333b38aff", Board: "bread-compact-wifi", Version: "2.4.2", Language: "en-US"}
	if len(f.issued) != 1 || f.issued[0] != want {
		t.Errorf("identified as %+v", f.issued)
	}
	mqtt := map[string]any{
		"endpoint": "10.0.0.2:1883", "client_id": "c", "username": "u", "password": "p",
		"publish_topic": "device-server", "subscribe_topic": "null", "keepalive": 240.0,
	}
	if fmt.Sprint(got.MQTT) != fmt.Sprint(mqtt) {
		t.Errorf("mqtt: %v", got.MQTT)
	}
	if fmt.Sprint(got.WebSocket) != fmt.Sprint(map[string]any{"url": both.WebSocket, "token": "t", "version": 1.0}) {
		t.Errorf("websocket: %v", got.WebSocket)
	}
	if got.Firmware.Version != "2.4.2" || got.Firmware.URL != "" || got.Activation.Code != "" {
		t.Errorf("firmware %+v, activation %+v", got.Firmware, got.Activation)
	}
	if age := time.Since(time.UnixMilli(got.ServerTime.Timestamp)); age < -time.Second || age > time.Minute {
		t.Errorf("the time is %v off", age)
	}
	for key := range got.MQTT {
		if len(key) > maxKey {
			t.Errorf("%s is too long for a device to store", key)
		}
	}
}

// TestOTAOneTransport: a transport that is not configured is not in the reply.
func TestOTAOneTransport(t *testing.T) {
	for _, cfg := range []OTAConfig{{MQTT: both.MQTT}, {WebSocket: both.WebSocket}} {
		got := read(t, post(t, newOTA(t, cfg, &fixed{}), "/", usualRequest))
		if (got.MQTT != nil) != (cfg.MQTT != "") || (got.WebSocket != nil) != (cfg.WebSocket != "") {
			t.Errorf("%+v: %+v", cfg, got)
		}
	}
}

// TestOTAOddBodies: invalid members of a body are ignored, and headers take precedence.
func TestOTAOddBodies(t *testing.T) {
	const mac = "98:a3:16:f9:d9:34"
	for _, test := range []struct {
		body, device, client string
		code                 int
		want                 Identity
	}{
		{``, mac, "u", 200, Identity{Address: mac, ClientID: "u"}},
		{`not JSON`, mac, "u", 200, Identity{Address: mac, ClientID: "u"}},
		{`[1,2]`, mac, "u", 200, Identity{Address: mac, ClientID: "u"}},
		{`{"mac_address":"00:00:00:00:00:01","uuid":"v"}`, "98-A3-16-F9-D9-34", "u", 200, Identity{Address: mac, ClientID: "u"}},
		{`{"mac_address":"98:a3:16:f9:d9:34","uuid":"v"}`, "", "", 200, Identity{Address: mac, ClientID: "v"}},
		{`{"mac_address":5,"uuid":{},"application":[],"board":{"mac":"AA:00:00:00:00:01","type":true},"language":null,"minimum_free_heap_size":1}`, "", "u", 200, Identity{Address: "aa:00:00:00:00:01", ClientID: "u"}},
		{`{"application":{"version":7},"board":"ml307"}`, mac, "u", 200, Identity{Address: mac, ClientID: "u"}},
		{`{}`, "", "u", 400, Identity{}},
		{`{}`, mac, "", 400, Identity{}},
		{`{"mac_address":"../../etc"}`, "", "u", 400, Identity{}},
		{`{"uuid":"a b"}`, mac, "", 400, Identity{}},
		{`{"a":"` + strings.Repeat("x", maxRequest) + `"}`, mac, "u", 400, Identity{}},
	} {
		f := &fixed{}
		w := post(t, newOTA(t, both, f), "/", test.body, "Device-Id", test.device, "Client-Id", test.client)
		if w.Code != test.code || test.code == 200 && (len(f.issued) != 1 || f.issued[0] != test.want) {
			t.Errorf("%.80s: %d %s, identified as %+v", test.body, w.Code, w.Body, f.issued)
		}
	}
}

// TestOTAActivation: a device that is not admitted gets digits to show and nothing else,
// and asks until it is admitted.
func TestOTAActivation(t *testing.T) {
	f := &fixed{code: "12-34 56"}
	o := newOTA(t, both, f)
	got := read(t, post(t, o, "/ota/", usualRequest))
	if got.Activation.Code != "123456" || !strings.Contains(got.Activation.Message, "123456") || got.MQTT != nil || got.WebSocket != nil || f.issued != nil {
		t.Errorf("got %+v, and a credential for %v", got, f.issued)
	}
	for _, path := range []string{"/ota/activate", "/ota//activate", "/ota/activate/"} {
		if w := post(t, o, path, "{}", "Device-Id", "98:a3:16:f9:d9:34", "Client-Id", "7b94"); w.Code != http.StatusAccepted {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	f.code = ""
	if w := post(t, o, "/ota/activate", "{}", "Device-Id", "98:a3:16:f9:d9:34", "Client-Id", "7b94"); w.Code != http.StatusOK {
		t.Errorf("%d after it was admitted", w.Code)
	}
	if got := read(t, post(t, o, "/ota/", usualRequest)); got.Activation.Code != "" || got.MQTT == nil {
		t.Errorf("got %+v after it was admitted", got)
	}
}

// TestOTARefused: a device that gets no credential is not told why. Neither is one that
// could not store its credential.
func TestOTARefused(t *testing.T) {
	for _, f := range []*fixed{{err: errors.New("secret reason")}, {credential: Credential{Password: strings.Repeat("x", 4000)}}} {
		if w := post(t, newOTA(t, both, f), "/", usualRequest); w.Code != http.StatusForbidden || strings.TrimSpace(w.Body.String()) != "this device is not admitted" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

// TestOTAHelp: a browser shows what the address is for.
func TestOTAHelp(t *testing.T) {
	w := httptest.NewRecorder()
	newOTA(t, both, &fixed{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "OTA field") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestOTAConfig(t *testing.T) {
	for _, cfg := range []OTAConfig{
		{}, {MQTT: "host"}, {MQTT: ":1883"}, {MQTT: "host:0"}, {MQTT: "host:x"}, {MQTT: "[::1]:1883"},
		{WebSocket: "http://host/"}, {WebSocket: "ws://"}, {WebSocket: "host:8000"}, {WebSocket: "ws://[::1]:80/"},
	} {
		if _, err := NewOTA(OTAParts{Config: cfg, Issuer: &fixed{}}); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// TestPlainVersion: firmware crashes on a version with other than digits and dots.
func TestPlainVersion(t *testing.T) {
	for version, want := range map[string]string{
		"2.4.2": "2.4.2", "1.6": "1.6", "v2.4": "2.4", "2.4.2-beta": "2.4.2", "": "0.0.0", "x": "0.0.0", "1.2.3.4.5": "1.2.3",
		"99999999999.1": "999999.1", "2..4": "2.4",
	} {
		if got := plainVersion(version); got != want {
			t.Errorf("%q became %q, want %q", version, got, want)
		}
	}
}

// FuzzIdentity parses any body: the identity is valid, or there is an error.
func FuzzIdentity(f *testing.F) {
	f.Add([]byte(usualRequest))
	f.Add([]byte(`{"mac_address":5,"uuid":{},"application":[],"board":{"mac":"AA:00:00:00:00:01","type":true}}`))
	f.Add([]byte(`{"board":{"mac":{"mac":"x"}},"application":{"version":"v2.4"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		id := parseIdentity(body)
		if id, err := id.checked(); err == nil && (len(id.Address) != 17 || id.ClientID == "" || len(id.ClientID) > 64 || len(id.Board) > 128) {
			t.Errorf("got %+v", id)
		}
		if strings.Trim(plainVersion(id.Version), "0123456789.") != "" {
			t.Errorf("version %q", plainVersion(id.Version))
		}
		o, err := NewOTA(OTAParts{Config: both, Issuer: &fixed{}})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		o.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(body))))
		if w.Code == http.StatusOK && !json.Valid(w.Body.Bytes()) {
			t.Errorf("answered %s", w.Body)
		}
	})
}
