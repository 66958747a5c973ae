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

// dialTime is how long it may take to reach an endpoint.
const dialTime = 15 * time.Second

// dial connects to the endpoint.
func (e *Endpoint) dial(ctx context.Context) (*socket, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
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
		return nil, fmt.Errorf("what is there is no endpoint, or does not work: HTTP %d", int(status))
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("it cannot be reached: nothing came of it in %v", dialTime)
	case err != nil:
		return nil, fmt.Errorf("it cannot be reached: %w", err)
	}
	return newSocket(conn, early), nil
}

// errRefused says that an endpoint does not let us in.
var errRefused = errors.New("the endpoint refuses the token: is its URL still the one that is shown where the agent is set up?")

// hide takes the secrets of the URL out of a text, whoever wrote it, and what a reader
// would not see.
func (e *Endpoint) hide(text string) string {
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
	return ferrule.Clean(text, maxWords)
}

// minSecret is the length from which something is worth hiding: less would take words
// apart.
const minSecret = 4

// maxWords is how much is said about why there is no connection.
const maxWords = 500
