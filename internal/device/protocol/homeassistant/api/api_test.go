package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant/fake"
)

// good is the token of a fake.Home.
func good() (string, error) { return fake.Token, nil }

// backlog is the limit of clients in memory.
const backlog = 1 << 20

// start runs a client of a fake Home Assistant in memory, in a synctest bubble.
func start(t *testing.T, home *fake.Home, token func() (string, error), log io.Writer) (client *api.Client, stop func()) {
	client = api.New(api.Config{URL: "http://home:8123", Token: token}, slog.New(slog.NewTextHandler(log, nil)))
	client.SetDial(home.Dial)
	client.SetBacklog(backlog)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	return client, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// connect waits for a connection.
func connect(t *testing.T, client *api.Client) *api.Conn {
	t.Helper()
	conn, err := client.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// firstFailure waits until a client has failed to connect, and returns its status. The attempt may
// have ended already; later ones that fail in the same way do not change the status.
func firstFailure(client *api.Client) api.Status {
	initial := api.New(api.Config{}, slog.New(slog.DiscardHandler)).Status().Reason
	for {
		changed := client.Changed()
		if status := client.Status(); status.Reason != initial {
			return status
		}
		<-changed
	}
}

// TestRefusedToken: a wrong token is sent once, also in a day. Another one is tried soon. No
// token is shown, even if Home Assistant repeats it.
func TestRefusedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.New()
		home.Answer = func(c *fake.Conn, token string) {
			if token == fake.Token {
				c.Send(map[string]any{"type": "auth_ok", "ha_version": "2026.7.4"})
				return
			}
			c.Send(map[string]any{"type": "auth_invalid", "message": "wrong: " + token})
			c.Close()
		}
		var token atomic.Value
		token.Store("wrong-token")
		var log bytes.Buffer
		client, stop := start(t, home, func() (string, error) { return token.Load().(string), nil }, &log)
		time.Sleep(24 * time.Hour)
		if status := client.Status(); home.Attempts() != 1 || !status.Refused || status.Connected || strings.Contains(status.Reason, "wrong-token") {
			t.Errorf("%d attempts, status %+v", home.Attempts(), status)
		}
		token.Store(fake.Token + "\n")
		asked := time.Now()
		connect(t, client)
		if took, got := time.Since(asked), home.Tokens(); took > 2*time.Second || !slices.Equal(got, []string{"wrong-token", fake.Token}) {
			t.Errorf("another token was tried after %v: %q", took, got)
		}
		if status := client.Status(); status.Refused || status.Reason != "" || status.Version != "2026.7.4" {
			t.Errorf("status %+v", status)
		}
		// It is revoked: the connection is cut, and the token is tried once more.
		token.Store("revoked")
		home.SetDown(true)
		home.SetDown(false)
		time.Sleep(time.Hour)
		if got := home.Tokens(); len(got) != 3 {
			t.Errorf("tokens %q", got)
		}
		stop()
		if text := log.String(); strings.Contains(text, "wrong-token") || strings.Contains(text, fake.Token) {
			t.Errorf("the log has a token: %s", text)
		}
	})
}

// TestBadToken: a token that cannot be one is not sent, and nothing is asked for.
func TestBadToken(t *testing.T) {
	for name, token := range map[string]func() (string, error){
		"missing": func() (string, error) { return "", errors.New("no such file") },
		"empty":   func() (string, error) { return " \n", nil },
		"lines":   func() (string, error) { return "one\ntwo", nil },
		"long":    func() (string, error) { return strings.Repeat("x", 5000), nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				home := fake.New()
				client, stop := start(t, home, token, io.Discard)
				defer stop()
				time.Sleep(time.Minute)
				if status := client.Status(); home.Attempts() != 0 || status.Connected || status.Reason == "" || status.Refused {
					t.Errorf("%d attempts, status %+v", home.Attempts(), status)
				}
			})
		})
	}
}

// TestIDs: on each connection IDs begin at the start and rise in the order of arrival.
func TestIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.New()
		client, stop := start(t, home, good, io.Discard)
		defer stop()
		seen := 0
		for range 4 {
			conn := connect(t, client)
			var tasks sync.WaitGroup
			for range 50 {
				tasks.Go(func() {
					if err := conn.Request(t.Context(), "get_config", nil, nil); err != nil {
						t.Error(err)
					}
				})
			}
			tasks.Wait()
			all := home.Commands()[seen:]
			seen += len(all)
			if len(all) != 51 || all[0].Type != "supported_features" {
				t.Fatalf("%d commands, the first is %+v", len(all), all[0])
			}
			for i, cmd := range all {
				if cmd.ID != int64(i+1) {
					t.Errorf("command %d has ID %d", i, cmd.ID)
				}
			}
			home.SetDown(true)
			<-conn.Done()
			home.SetDown(false)
		}
	})
}

// TestReconnect: while Home Assistant is away, attempts are not too frequent, and once it is
// back, the client is, too, within seconds. The reason is logged once.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.New()
		var log bytes.Buffer
		client, stop := start(t, home, good, &log)
		connect(t, client)
		time.Sleep(api.StableTime + time.Second)
		home.SetDown(true)
		before := home.Attempts()
		time.Sleep(time.Hour)
		if n := home.Attempts() - before; n < 900 || n > 2000 {
			t.Errorf("%d attempts in an hour", n)
		}
		if client.Status().Connected {
			t.Error("it is connected")
		}
		home.SetDown(false)
		back := time.Now()
		connect(t, client)
		if took := time.Since(back); took > api.RetryMax {
			t.Errorf("it is back after %v", took)
		}
		stop()
		if n := strings.Count(log.String(), "level=WARN"); n > 2 {
			t.Errorf("%d warnings: %s", n, &log)
		}
		if status := client.Status(); status.Connected || status.Reason != "stopped" {
			t.Errorf("status %+v", status)
		}
	})
}

// TestSilence: a Home Assistant that says nothing more is given up. One that answers pings is
// not.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.New()
		asked := make(chan struct{})
		home.Handle = func(c *fake.Conn, cmd fake.Command) {
			close(asked)
			io.Copy(io.Discard, c) // pings are not answered any longer
		}
		client, stop := start(t, home, good, io.Discard)
		defer stop()
		conn := connect(t, client)
		time.Sleep(time.Hour)
		if err := conn.Err(); err != nil {
			t.Fatalf("a quiet connection is lost: %v", err)
		}
		begin := time.Now()
		failed := make(chan error, 1)
		go func() { failed <- conn.Request(t.Context(), "call_service", nil, nil) }()
		<-asked
		err := <-failed
		if took := time.Since(begin); err == nil || errors.Is(err, api.ErrUnsent) || took > api.PingAfter+api.PongTime {
			t.Errorf("after %v: %v", took, err)
		}
		if !strings.Contains(err.Error(), "stopped answering") {
			t.Errorf("error %v", err)
		}
	})
}

// TestTrickle: a Home Assistant that sends a long message very slowly is given up.
func TestTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.New()
		home.Handle = func(c *fake.Conn, cmd fake.Command) {
			c.Write([]byte{0x81, 0x7f, 0, 0, 0, 0, 0, 0x10, 0, 0}) // a text of 1 MiB
			for {
				if _, err := c.Write([]byte("[")); err != nil {
					return
				}
				time.Sleep(5 * time.Second)
			}
		}
		client, stop := start(t, home, good, io.Discard)
		conn := connect(t, client)
		begin := time.Now()
		err := conn.Request(t.Context(), "get_states", nil, nil)
		if took := time.Since(begin); err == nil || !strings.Contains(err.Error(), "stopped answering") || took > api.AskEvery+api.AskTime {
			t.Errorf("after %v: %v", took, err)
		}
		stop()
		time.Sleep(10 * time.Second) // until Home Assistant notices
	})
}

// TestSilentLogin: a peer that accepts the connection and says nothing is given up.
func TestSilentLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.New()
		home.Greet = func(*fake.Conn) {}
		client, stop := start(t, home, good, io.Discard)
		defer stop()
		time.Sleep(11 * time.Second)
		if status := client.Status(); !strings.Contains(status.Reason, "said nothing") || len(home.Tokens()) != 0 {
			t.Errorf("status %+v, tokens %q", status, home.Tokens())
		}
	})
}

// TestForeign: what is not Home Assistant does not get the token.
func TestForeign(t *testing.T) {
	for name, test := range map[string]struct{ greeting, want string }{
		"text":   {"hello", "not the API"},
		"other":  {`{"type":"auth_ok"}`, "not the API"},
		"array":  {`[{"type":"auth_required"}]`, "not the API"},
		"long":   {`{"type":"auth_required","x":"` + strings.Repeat("x", 1<<20) + `"}`, "not the API"},
		"denied": {`{"type":"auth_invalid","message":"go\u001b[31m away"}`, "(go"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				home := fake.New()
				home.Greet = func(c *fake.Conn) { c.Raw([]byte(test.greeting)) }
				client, stop := start(t, home, good, io.Discard)
				defer stop()
				if status := firstFailure(client); !strings.Contains(status.Reason, test.want) || strings.Contains(status.Reason, "\x1b") || len(home.Tokens()) != 0 {
					t.Errorf("status %+v, tokens %q", status, home.Tokens())
				}
			})
		})
	}
}

// TestStatuses: an HTTP server that refuses is described, and a redirect is not followed.
func TestStatuses(t *testing.T) {
	for status, want := range map[int]string{403: "banned", 301: "redirects", 404: "check the address", 502: "starting"} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1); r.Header.Get("Authorization") != "" {
					t.Error("the handshake has the token")
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
			}))
			defer server.Close()
			client := run(t, api.Config{URL: server.URL, Token: good})
			if reason := firstFailure(client).Reason; !strings.Contains(reason, want) || !strings.Contains(reason, fmt.Sprint(status)) {
				t.Errorf("reason %s", reason)
			}
		})
	}
}

// TestPage: somebody who copied the address of a page from a browser is told what to leave out.
func TestPage(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("/", http.StatusFound))
	defer server.Close()
	client := run(t, api.Config{URL: server.URL + "/lovelace/0", Token: good})
	if reason := firstFailure(client).Reason; !strings.Contains(reason, "leave out /lovelace/0 in the address") {
		t.Errorf("reason %s", reason)
	}
}

// TestNobodyListens: the reason names the address.
func TestNobodyListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	client := run(t, api.Config{URL: "http://" + listener.Addr().String(), Token: good})
	if reason := firstFailure(client).Reason; !strings.Contains(reason, "nothing listens at "+listener.Addr().String()) {
		t.Errorf("reason %s", reason)
	}
}

func TestEndpoint(t *testing.T) {
	for address, want := range map[string]string{
		"http://home:8123":                  "ws://home:8123/api/websocket",
		"https://home/":                     "wss://home/api/websocket",
		"HTTP://[::1]:8123":                 "ws://[::1]:8123/api/websocket",
		"http://supervisor/core/websocket":  "ws://supervisor/core/websocket",
		"https://home/proxied/":             "wss://home/proxied/api/websocket",
		"home:8123":                         "",
		"":                                  "",
		"http://":                           "",
		"http://user:password@home":         "",
		"http://home?token=x":               "",
		"ftp://home":                        "",
		"http://home:8123/\x1b":             "",
		"  http://home:8123  ":              "ws://home:8123/api/websocket",
		"ws://home:8123/api/websocket":      "ws://home:8123/api/websocket",
		"http://home:8123/api/websocket#me": "",
	} {
		got, err := api.Endpoint(address)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", address, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "password") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}
