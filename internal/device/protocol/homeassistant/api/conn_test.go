package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant/fake"
)

// TestAnswers: an answer is decoded, or is an Error with clean text that says whether the
// command had an effect.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.New()
		home.Handle = func(c *fake.Conn, cmd fake.Command) {
			switch cmd.Type {
			case "good":
				c.Result(cmd.ID, map[string]any{"echo": cmd.Fields["say"]})
			case "broken":
				c.Result(cmd.ID, []int{1})
			case "silent_failure":
				c.Raw(fmt.Appendf(nil, `{"id":%d,"type":"result","success":false}`, cmd.ID))
			default:
				c.Fail(cmd.ID, cmd.Type, "no\x1b[31m "+strings.Repeat("x", 5000))
			}
		}
		client, stop := start(t, home, good, io.Discard)
		defer stop()
		conn := connect(t, client)
		var out struct{ Echo string }
		if err := conn.Request(t.Context(), "good", map[string]any{"say": "hi", "id": 99, "type": "other"}, &out); err != nil || out.Echo != "hi" {
			t.Errorf("got %+v, %v", out, err)
		}
		if err := conn.Request(t.Context(), "broken", nil, &out); err == nil || errors.Is(err, api.ErrUnsent) {
			t.Errorf("broken: %v", err)
		}
		for code, refused := range map[string]bool{"not_found": true, "unauthorized": true, "home_assistant_error": false, "silent_failure": false, "new_code": false} {
			err := conn.Request(t.Context(), code, nil, &out)
			var e *api.Error
			if !errors.As(err, &e) || e.Refused() != refused || len(err.Error()) > 1200 || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%s: %v", code, err)
			}
		}
	})
}

// TestLies: answers that were not asked for, or that come twice, are dropped. The first counts.
func TestLies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.New()
		home.Handle = func(c *fake.Conn, cmd fake.Command) {
			for _, id := range []int64{0, -1, 1, cmd.ID + 1, 1 << 62} {
				c.Result(id, "lie")
				c.Event(id, "lie")
			}
			c.Event(cmd.ID, "lie")
			c.Raw([]byte(`{}`))
			c.Raw([]byte(`[]`))
			c.Raw([]byte(`{"type":"news","id":null,"more":[1]}`))
			c.Result(cmd.ID, "first")
			c.Result(cmd.ID, "second")
			c.Fail(cmd.ID, "unknown_error", "third")
		}
		client, stop := start(t, home, good, io.Discard)
		defer stop()
		conn := connect(t, client)
		for range 3 {
			var got string
			if err := conn.Request(t.Context(), "x", nil, &got); err != nil || got != "first" {
				t.Errorf("got %q, %v", got, err)
			}
		}
		if conn.Err() != nil {
			t.Error(conn.Err())
		}
	})
}

// TestBroken: a message that is not one of the API ends the connection, and another follows.
func TestBroken(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON": `{"id":`, "text": `"hello"`, "number": `7`, "empty": ``, "ID": `{"id":"1","type":"result"}`,
		"array": `[{"id":77,"type":"result"},7]`, "deep": strings.Repeat("[", 20000),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				home := fake.New()
				home.Handle = func(c *fake.Conn, cmd fake.Command) {
					if c.Number == 1 {
						c.Raw([]byte(text))
						return
					}
					c.Result(cmd.ID, nil)
				}
				client, stop := start(t, home, good, io.Discard)
				defer stop()
				conn := connect(t, client)
				err := conn.Request(t.Context(), "x", nil, nil)
				if err == nil || errors.Is(err, api.ErrUnsent) || !strings.Contains(err.Error(), "not the API") || len(err.Error()) > 500 {
					t.Errorf("error %v", err)
				}
				if err := connect(t, client).Request(t.Context(), "x", nil, nil); err != nil {
					t.Error(err)
				}
				if n := len(home.Commands()); n != 4 { // with supported_features
					t.Errorf("%d commands", n)
				}
			})
		})
	}
}

// TestCoalesced: messages in arrays are the same as single ones, whatever else is in the array.
func TestCoalesced(t *testing.T) {
	for name, pack := range map[string]func(c *fake.Conn, all []string){
		"single": func(c *fake.Conn, all []string) {
			for _, one := range all {
				c.Raw([]byte(one))
			}
		},
		"together": func(c *fake.Conn, all []string) { c.Raw([]byte("[" + strings.Join(all, ",") + "]")) },
		"spaces":   func(c *fake.Conn, all []string) { c.Raw([]byte(" \n[ " + strings.Join(all, " ,\n ") + " ]\t")) },
		"pairs": func(c *fake.Conn, all []string) {
			for pair := range slices.Chunk(all, 2) {
				c.Raw([]byte("[" + strings.Join(pair, ",") + "]"))
			}
		},
		"with a member twice": func(c *fake.Conn, all []string) {
			c.Raw([]byte(`[{"id":77,"type":"event","event":{"a":1,"a":2}},` + strings.Join(all, ",") + "]"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				home := fake.New()
				home.Handle = func(c *fake.Conn, cmd fake.Command) {
					all := []string{fmt.Sprintf(`{"id":%d,"type":"result","success":true,"result":null}`, cmd.ID)}
					for i := range 9 {
						all = append(all, fmt.Sprintf(`{"id":%d,"type":"event","event":{"n":%d,"big":12345678901234567890}}`, cmd.ID, i))
					}
					pack(c, all)
				}
				client, stop := start(t, home, good, io.Discard)
				defer stop()
				var got []string
				_, err := connect(t, client).Subscribe(t.Context(), "subscribe", nil, func(event json.RawMessage) { got = append(got, string(event)) })
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if len(got) != 9 {
					t.Fatalf("%d events", len(got))
				}
				for i, event := range got {
					var e struct{ N, Big json.Number }
					if err := json.Unmarshal([]byte(event), &e); err != nil || e.N.String() != fmt.Sprint(i) || e.Big != "12345678901234567890" {
						t.Errorf("event %d: %s", i, event)
					}
				}
			})
		})
	}
}

// TestLost: a command whose connection is lost after it was sent has an unknown outcome, and
// is not sent again. After that nothing is sent.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.New()
		home.Handle = func(c *fake.Conn, cmd fake.Command) {
			switch cmd.Type {
			case "answered":
				c.Result(cmd.ID, "done")
				c.Close()
			case "cut":
				c.Close()
			}
		}
		client, stop := start(t, home, good, io.Discard)
		defer stop()
		conn := connect(t, client)
		err := conn.Request(t.Context(), "cut", nil, nil)
		if err == nil || errors.Is(err, api.ErrUnsent) || !strings.Contains(err.Error(), "Home Assistant closed the connection") {
			t.Errorf("sent: %v", err)
		}
		if err := conn.Request(t.Context(), "late", nil, nil); !errors.Is(err, api.ErrUnsent) {
			t.Errorf("after the end: %v", err)
		}
		if _, err := conn.Subscribe(t.Context(), "late", nil, func(json.RawMessage) {}); !errors.Is(err, api.ErrUnsent) {
			t.Errorf("after the end: %v", err)
		}
		// An answer that came before the end counts.
		for range 20 {
			var got string
			conn := connect(t, client)
			if err := conn.Request(t.Context(), "answered", nil, &got); err != nil || got != "done" {
				t.Errorf("answered: %q, %v", got, err)
			}
			<-conn.Done()
		}
		time.Sleep(time.Minute)
		count := 0
		for _, cmd := range home.Commands() {
			switch cmd.Type {
			case "cut":
				count++
			case "late":
				t.Error("it was sent")
			}
		}
		if count != 1 {
			t.Errorf("sent %d times", count)
		}
	})
}

// TestGivenUp: a request ends with its context. A later answer harms nobody.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.New()
		var waiting []int64
		home.Handle = func(c *fake.Conn, cmd fake.Command) {
			if waiting = append(waiting, cmd.ID); cmd.Type == "now" {
				for _, id := range waiting {
					c.Result(id, "late")
				}
			}
		}
		client, stop := start(t, home, good, io.Discard)
		defer stop()
		conn := connect(t, client)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := conn.Request(ctx, "slow", nil, nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, api.ErrUnsent) {
			t.Errorf("error %v", err)
		}
		if err := conn.Request(ctx, "never", nil, nil); !errors.Is(err, api.ErrUnsent) {
			t.Errorf("error %v", err)
		}
		var got string
		if err := conn.Request(t.Context(), "now", nil, &got); err != nil || got != "late" {
			t.Errorf("got %q, %v", got, err)
		}
		if n := len(waiting); n != 2 {
			t.Errorf("%d commands", n)
		}
	})
}

// TestBounds: a request that is too long for Home Assistant is not sent, and the number of
// requests that wait is limited.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.New()
		home.Handle = func(*fake.Conn, fake.Command) {}
		client, stop := start(t, home, good, io.Discard)
		conn := connect(t, client)
		if err := conn.Request(t.Context(), "x", map[string]any{"x": strings.Repeat("x", api.MaxRequest)}, nil); !errors.Is(err, api.ErrUnsent) {
			t.Errorf("too long: %v", err)
		}
		if err := conn.Request(t.Context(), "x", map[string]any{"x": func() {}}, nil); !errors.Is(err, api.ErrUnsent) {
			t.Errorf("no JSON: %v", err)
		}
		var answered atomic.Int32
		for range api.MaxPending {
			go func() {
				conn.Request(t.Context(), "x", nil, nil)
				answered.Add(1)
			}()
		}
		synctest.Wait()
		if err := conn.Request(t.Context(), "x", nil, nil); !errors.Is(err, api.ErrUnsent) || answered.Load() != 0 {
			t.Errorf("too many: %v, %d were answered", err, answered.Load())
		}
		stop()
		synctest.Wait()
		if answered.Load() != api.MaxPending {
			t.Errorf("%d requests have ended", answered.Load())
		}
	})
}

// TestSubscribe: events come in order until stop, which tells Home Assistant once.
func TestSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.New()
		var source *fake.Conn
		home.Handle = func(c *fake.Conn, cmd fake.Command) {
			if cmd.Type == "refused" {
				c.Event(cmd.ID, "too early")
				c.Fail(cmd.ID, "unauthorized", "no")
				return
			}
			source = c
			c.Result(cmd.ID, nil)
		}
		client, stop := start(t, home, good, io.Discard)
		defer stop()
		conn := connect(t, client)
		var got []string
		note := func(event json.RawMessage) { got = append(got, string(event)) }
		if _, err := conn.Subscribe(t.Context(), "refused", nil, note); err == nil {
			t.Error("no error")
		}
		synctest.Wait()
		got = nil
		end, err := conn.Subscribe(t.Context(), "subscribe_events", map[string]any{"event_type": "x"}, note)
		if err != nil {
			t.Fatal(err)
		}
		id := home.Commands()[len(home.Commands())-1].ID
		source.Event(id, 1)
		source.Event(id, 2)
		synctest.Wait()
		end()
		end()
		synctest.Wait()
		source.Event(id, 3)
		synctest.Wait()
		if !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("events %q", got)
		}
		ends := 0
		for _, cmd := range home.Commands() {
			if cmd.Type == "unsubscribe_events" && cmd.Fields["subscription"] == float64(id) {
				ends++
			}
		}
		if ends != 1 {
			t.Errorf("it was ended %d times", ends)
		}
	})
}

// TestLongMessage: a message of 20 MB is read. One over the limit ends the connection with a
// reason; another connection follows.
func TestLongMessage(t *testing.T) {
	home := fake.New()
	home.Handle = func(c *fake.Conn, cmd fake.Command) {
		size := int(cmd.Fields["size"].(float64))
		data := fmt.Appendf(nil, `{"id":%d,"type":"result","success":true,"result":"`, cmd.ID)
		c.Raw(append(append(data, bytes.Repeat([]byte("x"), size)...), `"}`...))
	}
	client := run(t, api.Config{URL: home.Listen(t), Token: good})
	conn := connect(t, client)
	var got string
	if err := conn.Request(t.Context(), "x", map[string]any{"size": 20 << 20}, &got); err != nil || len(got) != 20<<20 {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	err := conn.Request(t.Context(), "x", map[string]any{"size": api.MaxMessage}, &got)
	if err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("error %v", err)
	}
	if err := connect(t, client).Request(t.Context(), "x", map[string]any{"size": 1}, &got); err != nil || got != "x" {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// TestSlowReader: while a subscriber is busy, messages are still read, up to a limit in bytes.
// Home Assistant cuts a client that lets 4,096 of them wait.
func TestSlowReader(t *testing.T) {
	const short, shortSize = 5000, 100
	const long, longSize = 50, 64 << 10
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		home := fake.New()
		home.Handle = func(c *fake.Conn, cmd fake.Command) {
			c.Result(cmd.ID, nil)
			for ; sent < short+long; sent++ {
				size := shortSize
				if sent >= short {
					size = longSize
				}
				c.Event(cmd.ID, strings.Repeat("x", size))
			}
		}
		client, stop := start(t, home, good, io.Discard)
		defer stop()
		release := make(chan struct{})
		got := 0
		_, err := connect(t, client).Subscribe(t.Context(), "subscribe", nil, func(event json.RawMessage) {
			<-release
			got++
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if limit := short + backlog/longSize; sent < short+5 || sent > limit {
			t.Errorf("%d messages were read; the limit is %d", sent, limit)
		}
		close(release)
		synctest.Wait()
		if got != short+long {
			t.Errorf("%d messages were handled", got)
		}
	})
}
