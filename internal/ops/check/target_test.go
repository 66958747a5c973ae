package check_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/check"
)

// TestNoHTTP checks what is said about a port that accepts connections and does not speak HTTP.
func TestNoHTTP(t *testing.T) {
	slow(t)
	t.Parallel()
	for name, test := range map[string]struct {
		peer func(context.Context, net.Conn)
		want string
	}{
		"silent": {func(_ context.Context, conn net.Conn) { io.Copy(io.Discard, conn) }, ", but no HTTP answer came within 10s"},
		"other":  {func(_ context.Context, conn net.Conn) { io.WriteString(conn, "{\"jsonrpc\":\"2.0\"}\r\n") }, ", but its answer is not HTTP: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := serve(t, func(ctx context.Context, ln net.Listener) error { return accept(ctx, ln, test.peer) })
			_, err := check.Run(t.Context(), target(t, "http://"+addr+"/mcp"), check.Options{})
			e := ferrule.AsError(err)
			if e.Code != ferrule.Offline || !strings.HasPrefix(e.Message, "connected to http://"+addr+"/mcp"+test.want) || strings.Contains(e.Message, "deadline") {
				t.Errorf("got %s %q", e.Code, e.Message)
			}
			if !strings.Contains(e.Hint, "`ferrule check "+addr+"`") {
				t.Errorf("the hint is %q", e.Hint)
			}
		})
	}
}

// TestDeviceName checks that the error for the name of a device says how to check a device
// of a gateway.
func TestDeviceName(t *testing.T) {
	for text, named := range map[string]bool{"robot": true, "lamp-2": true, "my robot": false, "ftp://robot": false, "": false} {
		_, err := check.ParseTarget(text)
		if err == nil {
			t.Errorf("%q is accepted", text)
			continue
		}
		if got := strings.Contains(err.Error(), "`ferrule release "+text+" -- ferrule check TARGET`"); got != named {
			t.Errorf("%q: got %q", text, err)
		}
	}
}
