package provision_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/xiaozhi"
	"github.com/ferrulehq/ferrule/internal/device/protocol/xiaozhi/provision"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	device "github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// newVision returns a handler, and the URL of a server for it.
func newVision(t *testing.T, most int64) (*provision.Vision, string) {
	t.Helper()
	var vision *provision.Vision
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { vision.ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	vision, err := provision.NewVision(provision.VisionConfig{URL: server.URL + "/vision", MaxPicture: most})
	if err != nil {
		t.Fatal(err)
	}
	return vision, server.URL
}

// TestPhoto: a picture that a toy uploads while its tool runs is part of the result.
func TestPhoto(t *testing.T) {
	vision, _ := newVision(t, 0)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	toy, err := sim.NewToy(1, "")
	if err != nil {
		t.Fatal(err)
	}
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer far.Close()
	wg.Go(func() { toy.ServeConn(context.Background(), device.Lines(far), true) })
	link := transport.NewStream(near, transport.Info{Transport: "ws", Address: "98:a3:16:f9:d9:34"}, transport.DefaultLimits())
	s, _, err := xiaozhi.New(xiaozhi.Parts{Pictures: vision}).Greet(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	wg.Go(func() { s.Run(ctx) })
	for range 2 { // each call has its own picture
		call, cancel := context.WithTimeout(t.Context(), wait.Ample)
		result, err := s.Invoke(call, &ferrule.Call{Device: "toy", Tool: "self.camera.take_photo", Args: []byte(`{"question":"What is it?"}`)})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Content) != 2 || result.Content[1].Type != ferrule.ImageContent || result.Content[1].MIME != "image/jpeg" ||
			!bytes.HasPrefix(result.Content[1].Data, []byte{0xff, 0xd8}) || !strings.Contains(string(result.Value), `"success":true`) {
			t.Errorf("got %s and %d parts", result.Value, len(result.Content))
		}
	}
	result, err := s.Invoke(t.Context(), &ferrule.Call{Device: "toy", Tool: "self.lamp.turn_on"})
	if err != nil || result.Content != nil {
		t.Errorf("a call without a picture has %v, %v", result, err)
	}
	if _, err := toy.Explain(t.Context(), toy.Identity, "?", []byte{0xff, 0xd8, 0xff}); err == nil || !strings.Contains(err.Error(), "409") {
		t.Errorf("a picture without a call: %v", err)
	}
}

// TestCheckIn: a toy gets a credential of its own, and another client that claims to be
// the same toy gets none.
func TestCheckIn(t *testing.T) {
	issuer, err := provision.NewCredentials(bytes.Repeat([]byte("k"), 32), nil, func(provision.KnownDevice) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	ota, err := provision.NewOTA(provision.OTAParts{Config: provision.OTAConfig{MQTT: "10.0.0.2:1883", WebSocket: "ws://10.0.0.2/"}, Issuer: issuer})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(ota)
	defer server.Close()
	toy, err := sim.NewToy(1, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := toy.CheckIn(t.Context(), server.URL+"/xiaozhi/ota/", toy.Identity)
	if err != nil || got.MQTT == nil || got.WebSocket == nil || got.Code != "" || got.MQTT.KeepAlive != 240 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, secret := range []string{got.MQTT.Password, got.WebSocket.Token} {
		if whose, err := issuer.Check(secret); err != nil || whose.Address != toy.Identity.DeviceID {
			t.Errorf("%+v, %v", whose, err)
		}
	}
	thief := toy.Identity
	thief.ClientID = "another"
	if _, err := toy.CheckIn(t.Context(), server.URL, thief); err == nil {
		t.Error("another client got the settings")
	}
}

// form returns a request body as a camera sends it.
func form(name string, picture []byte) string {
	const boundary = "------ESP32_CAMERA_BOUNDARY"
	return boundary + "\r\nContent-Disposition: form-data; name=\"question\"\r\n\r\nWhat?\r\n" +
		boundary + "\r\nContent-Disposition: form-data; name=\"" + name + "\"; filename=\"camera.jpg\"\r\nContent-Type: image/jpeg\r\n\r\n" +
		string(picture) + "\r\n" + boundary + "--\r\n"
}

// post sends a body with a token, and returns the status and the text.
func post(t *testing.T, url, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "multipart/form-data; boundary=----ESP32_CAMERA_BOUNDARY")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestVision: only a picture that a call waits for is accepted.
func TestVision(t *testing.T) {
	vision, base := newVision(t, 1000)
	url, token := vision.Offer("98:a3:16:f9:d9:34")
	if url != base+"/vision" {
		t.Errorf("pictures go to %s", url)
	}
	jpeg := []byte("\xff\xd8\xff\xe0picture")
	if code, _ := post(t, url, token, form("file", jpeg)); code != http.StatusConflict {
		t.Errorf("%d before a call", code)
	}
	stop := vision.Await(token)
	_, other := vision.Offer("98:a3:16:f9:d9:34")
	for _, test := range []struct {
		token, body string
		want        int
	}{
		{"", form("file", jpeg), http.StatusUnauthorized},
		{"nonsense", form("file", jpeg), http.StatusUnauthorized},
		{token[:len(token)-1] + "~", form("file", jpeg), http.StatusUnauthorized},
		{strings.Repeat("A", len(token)), form("file", jpeg), http.StatusUnauthorized},
		{other, form("file", jpeg), http.StatusConflict},
		{token, form("picture", jpeg), http.StatusBadRequest},
		{token, form("file", []byte("no picture")), http.StatusBadRequest},
		{token, form("file", nil), http.StatusBadRequest},
		{token, "no form", http.StatusBadRequest},
		{token, form("file", append(jpeg, make([]byte, 1000)...)), http.StatusRequestEntityTooLarge},
		{token, form("file", append(jpeg, make([]byte, 1<<20)...)), http.StatusRequestEntityTooLarge},
		{token, form("file", jpeg)[:200], http.StatusBadRequest},
	} {
		if code, text := post(t, url, test.token, test.body); code != test.want {
			t.Errorf("%.40q: %d %s", test.body, code, text)
		}
	}
	for range 4 {
		if code, text := post(t, url, token, form("file", jpeg)); code != http.StatusOK || !strings.Contains(text, `"success":true`) {
			t.Errorf("%d %s", code, text)
		}
	}
	if code, _ := post(t, url, token, form("file", jpeg)); code != http.StatusConflict {
		t.Errorf("%d for a fifth picture", code)
	}
	if pictures := stop(); len(pictures) != 4 || !bytes.Equal(pictures[0].Data, jpeg) || pictures[0].MIME != "image/jpeg" {
		t.Errorf("got %v", pictures)
	}
	if code, _ := post(t, url, token, form("file", jpeg)); code != http.StatusConflict {
		t.Errorf("%d after the call", code)
	}
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("%d for GET", resp.StatusCode)
	}
}

func TestVisionConfig(t *testing.T) {
	for _, cfg := range []provision.VisionConfig{{}, {URL: "ws://a/"}, {URL: "http://"}, {URL: "http://a/", MaxPicture: -1}} {
		if _, err := provision.NewVision(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// FuzzVision uploads any body: the result is a picture within the limit, or an error.
func FuzzVision(f *testing.F) {
	f.Add(form("file", []byte("\xff\xd8\xff\xe0picture")))
	f.Add(form("file", nil))
	f.Add(form("question", []byte("x")))
	f.Add("------ESP32_CAMERA_BOUNDARY\r\n\r\n")
	f.Fuzz(func(t *testing.T, body string) {
		vision, err := provision.NewVision(provision.VisionConfig{URL: "http://a/", MaxPicture: 100})
		if err != nil {
			t.Fatal(err)
		}
		_, token := vision.Offer("a")
		stop := vision.Await(token)
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "multipart/form-data; boundary=----ESP32_CAMERA_BOUNDARY")
		w := httptest.NewRecorder()
		vision.ServeHTTP(w, r)
		pictures := stop()
		if (w.Code == http.StatusOK) != (len(pictures) == 1) {
			t.Errorf("%d, and %d pictures", w.Code, len(pictures))
		}
		for _, p := range pictures {
			if len(p.Data) > 100 || !strings.HasPrefix(p.MIME, "image/") {
				t.Error(fmt.Sprint(len(p.Data), p.MIME))
			}
		}
	})
}
