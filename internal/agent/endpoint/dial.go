package endpoint

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

const dialTimeout = 15 * time.Second

func (e *Endpoint) dial(ctx context.Context) (*socket, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dialer := ws.Dialer{
		TLSConfig: &tls.Config{RootCAs: e.roots, ServerName: e.url.Hostname(), MinVersion: tls.VersionTLS12},
	}
	if user := e.url.User; user != nil {
		password, _ := user.Password()
		basic := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		dialer.Header = ws.HandshakeHeaderHTTP{"Authorization": {"Basic " + basic}}
	}
	conn, early, _, err := dialer.Dial(ctx, e.url.String())
	var status ws.StatusError
	switch {
	case errors.As(err, &status) && (status == http.StatusUnauthorized || status == http.StatusForbidden):
		return nil, fmt.Errorf("%w (HTTP %d)", errRefused, int(status))
	case errors.As(err, &status):
		return nil, fmt.Errorf("not an MCP endpoint, or it is out of order: HTTP %d", int(status))
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("cannot be reached: no answer within %v", dialTimeout)
	case err != nil:
		return nil, fmt.Errorf("cannot be reached: %w", err)
	}
	return newSocket(conn, early), nil
}

var errRefused = errors.New("the endpoint rejects the token; compare the URL with the one shown where the agent is set up")

// redact removes the secrets of the URL from a text, and invisible characters.
func (e *Endpoint) redact(text string) string {
	secrets := []string{e.url.String(), e.url.RawQuery}
	for _, values := range e.url.Query() {
		for _, value := range values {
			secrets = append(secrets, value, url.QueryEscape(value))
		}
	}
	if password, ok := e.url.User.Password(); ok {
		secrets = append(secrets, password)
	}
	for _, secret := range secrets {
		if len(secret) >= minSecret {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return ferrule.Clean(text, maxReason)
}

// minSecret is the minimum length of a redacted value: shorter ones occur in words.
const minSecret = 4

// maxReason is the maximum length of State.Reason.
const maxReason = 500
