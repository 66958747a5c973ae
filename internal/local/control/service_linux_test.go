package control_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// TestGroupSocket checks that a gateway with a socket for its group serves both sockets,
// and refuses a directory in which others could replace the socket.
func TestGroupSocket(t *testing.T) {
	dir := t.TempDir()
	own, group := filepath.Join(dir, "own.sock"), filepath.Join(dir, "run", "control.sock")
	g := &gateway{handle: func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		return &ferrule.Result{Value: fmt.Appendf(nil, "%q", fmt.Sprintf("%s by %s, %s", call.Principal, call.Principal.Auth, call.Principal.User))}, nil
	}}
	listen := func() (*control.Server, error) {
		return control.Listen(own, control.Parts{Handle: g.handle, GroupSocket: group, Log: slog.New(slog.DiscardHandler)})
	}
	if _, err := listen(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
	if err := os.Mkdir(filepath.Dir(group), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o755, 0o770, 0o701} {
		if err := os.Chmod(filepath.Dir(group), mode); err != nil {
			t.Fatal(err)
		}
		if _, err := listen(); err == nil || !strings.Contains(err.Error(), "must belong to this user") {
			t.Errorf("in a directory with mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(filepath.Dir(group), 0o750); err != nil {
		t.Fatal(err)
	}
	server, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{own: 0o600, group: 0o660} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want mode %o", path, info.Mode(), err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	for _, path := range []string{own, group} {
		client := control.NewClient(filepath.Join(dir, "absent"), path)
		// Neither a person nor an agent can call as somebody else.
		user := control.User().Name
		result, err := client.Handle(ctx, &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Person, Name: "anna", Auth: ferrule.AuthToken, User: "anna"}})
		if want := fmt.Sprintf("%q", "person:"+user+" by socket, "+user); err != nil || string(result.Value) != want {
			t.Errorf("%s: got %v, %v, want %s", path, result, err, want)
		}
		result, err = client.Handle(ctx, &ferrule.Call{
			Principal: ferrule.Principal{Role: ferrule.Agent, Name: "claude", Auth: ferrule.AuthToken, User: "anna"}, Client: ferrule.Client{Name: "Claude Code"},
		})
		if want := fmt.Sprintf("%q", "agent:local/claude-code by stdio, "+user); err != nil || string(result.Value) != want {
			t.Errorf("%s: got %v, %v, want %s", path, result, err, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestStaysWithGateway checks that a client does not change to another gateway: answers to
// questions, for example, belong to the gateway that asked.
func TestStaysWithGateway(t *testing.T) {
	dir := t.TempDir()
	start := func(name string) (stop func()) {
		server, err := control.Listen(filepath.Join(dir, name), control.Parts{
			Handle: func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
				return &ferrule.Result{Value: fmt.Appendf(nil, "%q", name)}, nil
			},
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- server.Run(ctx) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	client := control.NewClient(filepath.Join(dir, "first"), filepath.Join(dir, "second"))
	stopSecond := start("second")
	stopFirst := func() {}
	for range 2 {
		if result, err := client.Handle(t.Context(), &ferrule.Call{}); err != nil || string(result.Value) != `"second"` {
			t.Errorf("got %v, %v", result, err)
		}
		stopFirst()
		stopFirst = start("first")
	}
	stopSecond()
	if _, err := client.Handle(t.Context(), &ferrule.Call{}); !errors.Is(err, control.ErrNoGateway) {
		t.Errorf("got %v", err)
	}
	stopFirst()
}
