// Package api is the WebSocket API of Home Assistant: one connection, requests with answers,
// and subscriptions.
//
//	Client.Run: dial -> log in -> Conn -> lost -> wait -> dial ...
//	Conn:       link -> reader -> queue -> dispatcher -> answers and events
//
// Home Assistant cuts a client that does not read fast enough, so the reader does nothing else.
// Nothing is sent twice: a request whose connection is lost fails.
package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

const (
	// retryMin and retryMax bound the time between two attempts to connect. Devices must be
	// back soon after Home Assistant is.
	retryMin = 250 * time.Millisecond
	retryMax = 4 * time.Second
	// stableTime is how long a connection must live to count as a good one.
	stableTime = 10 * time.Second
	// tokenPoll is how often a token that was refused is compared with the present one.
	tokenPoll = time.Second
	// maxToken is the length of the longest token.
	maxToken = 4 << 10
)

// Config is where a Home Assistant is, and how to log in.
type Config struct {
	// URL is its address: http or https, a host, and a path if a proxy adds one.
	URL string
	// Token reads the access token, again for each connection: the owner may replace it.
	Token func() (string, error)
	// CA is a file with CA certificates; empty for those of the system.
	CA string
}

// Client keeps a connection to a Home Assistant. It must be running to be of use.
type Client struct {
	cfg  Config
	log  *slog.Logger
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// backlog is how many bytes may wait to be handled.
	backlog int

	mu      sync.Mutex
	status  Status
	changed chan struct{}
	conn    *Conn // nil if there is none
}

// New returns a client. It does nothing until Run.
func New(cfg Config, log *slog.Logger) *Client {
	return &Client{
		cfg: cfg, log: log, dial: new(net.Dialer).DialContext, backlog: maxMessage, changed: make(chan struct{}),
		status: Status{Since: time.Now(), Reason: "not connected yet"},
	}
}

// Run connects, and reconnects with back-off, until ctx ends. It returns nil then. A token that
// was refused is not tried again until it is another one: Home Assistant warns its owner of each
// attempt, and may ban this machine.
func (c *Client) Run(ctx context.Context) error {
	if _, err := Endpoint(c.cfg.URL); err != nil {
		return err
	}
	wait := retryMin
	for ctx.Err() == nil {
		start := time.Now()
		err := c.connect(ctx)
		if ctx.Err() != nil {
			break
		}
		var refused *refusedError
		c.lost(err, errors.As(err, &refused))
		if refused != nil {
			c.awaitToken(ctx, refused.token)
			wait = retryMin
			continue
		}
		if time.Since(start) > stableTime {
			wait = retryMin
		}
		// Many clients must not come back at the same moment.
		sleep(ctx, wait/2+rand.N(wait/2+1))
		wait = min(2*wait, retryMax)
	}
	c.set(nil, Status{Reason: "stopped"})
	return nil
}

// connect logs in, and hands the connection to the callers of Connect until it is lost. It
// returns why.
func (c *Client) connect(ctx context.Context) error {
	token, err := c.token()
	if err != nil {
		return err
	}
	conn, err := c.open(ctx, token)
	if err != nil {
		return err
	}
	c.log.Info("connected to Home Assistant", "url", c.cfg.URL, "version", conn.Version())
	c.set(conn, Status{Connected: true, Version: conn.Version()})
	select {
	case <-conn.Done():
	case <-ctx.Done():
	}
	conn.close()
	return conn.Err()
}

// token reads the token.
func (c *Client) token() (string, error) {
	token, err := c.cfg.Token()
	if err != nil {
		return "", err
	}
	token = strings.TrimSpace(token)
	switch {
	case token == "":
		return "", errors.New("the access token is empty")
	case len(token) > maxToken, strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New("the access token is broken: it must be one line of letters, digits and punctuation")
	}
	return token, nil
}

// awaitToken waits until the token is another one than the one that was refused.
func (c *Client) awaitToken(ctx context.Context, refused [sha256.Size]byte) {
	for ctx.Err() == nil {
		sleep(ctx, tokenPoll)
		if token, err := c.token(); err == nil && sha256.Sum256([]byte(token)) != refused {
			return
		}
	}
}

// sleep waits until a time has passed or ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// lost notes why there is no connection. The same reason is logged once.
func (c *Client) lost(err error, refused bool) {
	if old := c.Status(); old.Connected || old.Reason != err.Error() {
		c.log.Warn("no connection to Home Assistant", "url", c.cfg.URL, "err", err)
	}
	c.set(nil, Status{Reason: err.Error(), Refused: refused})
}

// set changes the status.
func (c *Client) set(conn *Conn, status Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	status.Since = c.status.Since
	if status.Connected != c.status.Connected {
		status.Since = time.Now()
	}
	if c.conn = conn; status == c.status {
		return
	}
	c.status = status
	close(c.changed)
	c.changed = make(chan struct{})
}

// Connect waits for a connection and returns it. All callers get the same one. It returns
// ctx's error if ctx ends first.
func (c *Client) Connect(ctx context.Context) (*Conn, error) {
	for {
		c.mu.Lock()
		conn, changed := c.conn, c.changed
		c.mu.Unlock()
		if conn != nil && conn.Err() == nil {
			return conn, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Status is the state of the connection, for people.
type Status struct {
	Connected bool
	// Version is that of Home Assistant; empty without a connection.
	Version string
	// Since is when Connected last changed; Reason is why there is no connection.
	Since  time.Time
	Reason string
	// Refused reports that the token was refused. It is not tried again.
	Refused bool
}

// Status returns the state of the connection.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Changed returns a channel that is closed when the Status changes.
func (c *Client) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Endpoint returns the address of the WebSocket of a Home Assistant, or why its URL is not
// valid.
func Endpoint(address string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil {
		return "", errors.New("the address of Home Assistant is not a URL: use http://HOST:8123")
	}
	scheme, known := map[string]string{"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}[strings.ToLower(u.Scheme)]
	switch {
	case !known:
		return "", fmt.Errorf("the address of Home Assistant must begin with http:// or https://, got %q", ferrule.Clean(address, 100))
	case u.Hostname() == "":
		return "", errors.New("the address of Home Assistant has no host: use http://HOST:8123")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("the address of Home Assistant must have no user, query or fragment")
	}
	path := strings.TrimRight(u.Path, "/")
	if !strings.HasSuffix(path, "/websocket") {
		path += "/api/websocket"
	}
	return (&url.URL{Scheme: scheme, Host: u.Host, Path: path}).String(), nil
}
