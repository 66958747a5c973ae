package endpoint

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"
)

// run runs an endpoint with its own dial function until the test ends.
func run(t *testing.T, reach func() (net.Conn, error)) (*Endpoint, *logged) {
	var log logged
	e, err := New(Parts{Config: Config{Name: "home", URL: "ws://example.com", Limit: DefaultLimit}, Server: newBoard(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	e.dialSocket = func(context.Context) (*socket, error) {
		conn, err := reach()
		if err != nil {
			return nil, err
		}
		return newSocket(conn, nil), nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return e, &log
}

// TestBackOff checks the reconnect delay, up to a minute, and that one warning is logged.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dialled []time.Time
		_, log := run(t, func() (net.Conn, error) {
			dialled = append(dialled, time.Now())
			return nil, errors.New("nobody is there")
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		most := retryMin
		for i := 1; i < len(dialled); i++ {
			if pause := dialled[i].Sub(dialled[i-1]); pause < most/2 || pause > most {
				t.Errorf("pause %d is %v, want from %v to %v", i, pause, most/2, most)
			}
			most = min(2*most, retryMax)
		}
		if n := len(dialled); n < 60 || n > 130 {
			t.Errorf("dialled %d times in an hour", n)
		}
		if log.lines("\n") != 1 || log.lines("nobody is there") != 1 {
			t.Errorf("logged: %s", log.String())
		}
	})
}

// TestRefusedSlowly checks the delay of a minute after a refusal.
func TestRefusedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialled := 0
		run(t, func() (net.Conn, error) {
			dialled++
			return nil, fmt.Errorf("%w (HTTP 401)", errRefused)
		})
		time.Sleep(10 * time.Minute)
		if synctest.Wait(); dialled < 10 || dialled > 21 {
			t.Errorf("dialled %d times in ten minutes", dialled)
		}
	})
}

// TestBackOffEnds checks that the delay starts over after a stable connection.
func TestBackOffEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := 8
		fars := make(chan net.Conn, 1)
		e, log := run(t, func() (net.Conn, error) {
			if fails--; fails >= 0 {
				return nil, errors.New("nobody is there")
			}
			near, far := net.Pipe()
			fars <- far
			return near, nil
		})
		far := <-fars
		for range 2 {
			go answerPings(far)
			time.Sleep(settling - 1)
			if synctest.Wait(); e.State().Connected {
				t.Error("it is taken to be connected at once")
			}
			time.Sleep(stable)
			if state := e.State(); !state.Connected || state.Reason != "" || time.Since(state.Since) > stable {
				t.Errorf("got %+v", state)
			}
			far.Close()
			lost := time.Now()
			synctest.Wait()
			if state := e.State(); state.Connected || !strings.Contains(state.Reason, "closed by the endpoint without a close frame") || !state.Since.Equal(lost) {
				t.Errorf("got %+v", state)
			}
			if far = <-fars; time.Since(lost) > retryMin {
				t.Errorf("it was tried again after %v", time.Since(lost))
			}
		}
		if log.lines(": connected to ws://example.com") != 2 || log.lines("not connected") != 3 || log.lines("\n") != 5 {
			t.Errorf("logged: %s", log.String())
		}
		far.Close()
	})
}

// answerPings answers pings and sends nothing else.
func answerPings(far net.Conn) {
	for {
		f, err := ws.ReadFrame(far)
		if err != nil {
			return
		}
		if f.Header.OpCode == ws.OpPing {
			ws.WriteFrame(far, ws.NewPongFrame(nil))
		}
	}
}

// TestHalfOpen checks that a dead connection is detected by pings, with TLS too.
func TestHalfOpen(t *testing.T) {
	certificate := selfSigned(t)
	for _, secure := range []bool{false, true} {
		for _, answers := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer far.Close()
				if secure {
					near = tls.Client(near, &tls.Config{InsecureSkipVerify: true})
					far = tls.Server(far, &tls.Config{Certificates: []tls.Certificate{certificate}})
				}
				if answers {
					go answerPings(far)
				} else {
					go io.Copy(io.Discard, far)
				}
				s := newSocket(near, nil)
				begun := time.Now()
				if answers {
					time.AfterFunc(time.Hour, func() { near.Close() })
				}
				_, err := s.recv()
				took := time.Since(begun)
				if !answers && (!errors.Is(err, errNoPong) || took != pingAfter+pongTimeout) || answers && took < time.Hour {
					t.Errorf("secure %t, answers %t: after %v, %v", secure, answers, took, err)
				}
				near.Close()
			})
		}
	}
}

// selfSigned returns a self-signed certificate.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestStuck checks that a write times out if the endpoint does not read.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		s := newSocket(near, nil)
		begun := time.Now()
		err := s.send(ws.OpText, []byte("{}"))
		if took := time.Since(begun); err == nil || took != writeTimeout {
			t.Errorf("after %v, %v", took, err)
		}
		if _, why := s.recv(); !errors.Is(why, err) {
			t.Errorf("got %v, want %v", why, err)
		}
	})
}
