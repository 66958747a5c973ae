package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

const (
	// maxMessage is the length of the longest message that is read. Home Assistant sends all
	// states in one.
	maxMessage = 64 << 20
	// connectTimeout is how long a connection may take, and the login after it.
	connectTimeout = 10 * time.Second
	// pingAfter is how long Home Assistant may be silent before it gets a ping, and pongTime
	// how long it has to answer.
	pingAfter = 20 * time.Second
	pongTime  = 20 * time.Second
	// sendTimeout is how long one message may take to be written.
	sendTimeout = 10 * time.Second
)

// refusedError means that Home Assistant refused the token, which is kept as a hash.
type refusedError struct {
	token [sha256.Size]byte
	words string
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("Home Assistant refused the access token (%s): run `ferrule setup homeassistant` with another one", e.words)
}

// open opens a connection and logs in.
func (c *Client) open(ctx context.Context, token string) (*Conn, error) {
	link, err := c.cfg.link(ctx, c.dial)
	if err != nil {
		return nil, err
	}
	version, err := login(ctx, link, token)
	if err != nil {
		link.Close()
		return nil, err
	}
	return newConn(link, version, c.backlog), nil
}

// greeting is a message of the login.
type greeting struct {
	Type    string `json:"type"`
	Version string `json:"ha_version"`
	Message string `json:"message"`
}

// login sends the token, once, and returns the version of Home Assistant.
func login(ctx context.Context, link transport.Link, token string) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := expect(ctx, link, token, "auth_required", nil); err != nil {
		return "", err
	}
	auth, err := json.Marshal(map[string]string{"type": "auth", "access_token": token})
	if err != nil {
		return "", err
	}
	if err := link.Send(ctx, transport.Message{Data: auth}); err != nil {
		return "", lostError(err)
	}
	var ok greeting
	if err := expect(ctx, link, token, "auth_ok", &ok); err != nil {
		return "", err
	}
	// Many short messages may come as one array from now on. The answer does not matter.
	features := fmt.Appendf(nil, `{"id":%d,"type":"supported_features","features":{"coalesce_messages":1}}`, firstID)
	if err := link.Send(ctx, transport.Message{Data: features}); err != nil {
		return "", lostError(err)
	}
	return ferrule.Clean(ok.Version, 50), nil
}

// expect reads a message of the login that must have a type.
func expect(ctx context.Context, link transport.Link, token, kind string, out *greeting) error {
	m, err := link.Recv(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("Home Assistant accepted the connection and then said nothing: check the address")
		}
		return lostError(err)
	}
	var got greeting
	if len(m.Data) > maxGreeting || json.Unmarshal(m.Data, &got) != nil {
		return errForeign
	}
	switch got.Type {
	case kind:
		if out != nil {
			*out = got
		}
		return nil
	case "auth_invalid":
		words := got.Message
		if token != "" {
			words = strings.ReplaceAll(words, token, "…") // it must not come back
		}
		return &refusedError{token: sha256.Sum256([]byte(token)), words: ferrule.Clean(words, 200)}
	}
	return errForeign
}

// maxGreeting is the length of the longest message of a login.
const maxGreeting = 16 << 10
