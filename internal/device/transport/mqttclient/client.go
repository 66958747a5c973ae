package mqttclient

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"sync"
	"time"
)

const (
	// connectTimeout is how long a connection and the answer to CONNECT may take each.
	connectTimeout = 10 * time.Second
	// oldVersionTime is how long a broker is taken for one without MQTT 5.
	oldVersionTime = time.Hour
	// stableTime is how long a connection must live to count as a good one.
	stableTime = 10 * time.Second
)

// Client keeps a connection to a broker. It must be running to be of use.
type Client struct {
	cfg Config
	log *slog.Logger
	// keepAlive is shorter in tests.
	keepAlive time.Duration
	// oldUntil is until when the broker is taken for one without MQTT 5.
	oldUntil time.Time

	mu      sync.Mutex
	state   State
	changed chan struct{}
	conn    *Conn // nil if there is none
}

// New returns a Client. It does nothing until Run.
func New(cfg Config, log *slog.Logger) *Client {
	if cfg.ClientID == "" {
		cfg.ClientID = "ferrule-" + rand.Text()[:12]
	}
	return &Client{
		cfg: cfg, log: log, keepAlive: keepAlive, changed: make(chan struct{}),
		state: State{Since: time.Now(), Reason: "not connected yet"},
	}
}

// Run connects, and reconnects with back-off, until ctx ends. It returns nil then.
func (c *Client) Run(ctx context.Context) error {
	if err := c.cfg.Check(); err != nil {
		return err
	}
	wait := c.cfg.RetryMin
	for ctx.Err() == nil {
		start := time.Now()
		conn, err := c.connect(ctx)
		if err == nil {
			err = c.serve(ctx, conn)
			if time.Since(start) > stableTime {
				wait = c.cfg.RetryMin
			}
		}
		if ctx.Err() != nil {
			break
		}
		c.lost(err)
		// Many clients of a broker must not come back at the same moment.
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + mathrand.N(wait/2+1)):
		}
		wait = min(2*wait, c.cfg.RetryMax)
	}
	c.set(nil, State{Reason: "stopped"})
	return nil
}

// serve hands a connection to the callers of Connect until it is lost. It returns why.
func (c *Client) serve(ctx context.Context, conn *Conn) error {
	c.log.Info("connected to the broker", "url", c.cfg.URL, "version", VersionName(conn.Version()))
	c.set(conn, State{Connected: true, Version: conn.Version()})
	select {
	case <-conn.Done():
	case <-ctx.Done():
	}
	conn.leave(c.cfg.Will != nil)
	return conn.Err()
}

// lost notes why there is no connection. The same reason is logged once.
func (c *Client) lost(err error) {
	if old := c.State(); old.Connected || old.Reason != err.Error() {
		c.log.Warn("no connection to the broker", "url", c.cfg.URL, "err", err)
	}
	c.set(nil, State{Reason: err.Error()})
}

// set changes the state.
func (c *Client) set(conn *Conn, state State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state.Since = c.state.Since
	if state.Connected != c.state.Connected {
		state.Since = time.Now()
	}
	if c.conn = conn; state == c.state {
		return
	}
	c.state = state
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

// State describes the connection, for people.
type State struct {
	Connected bool
	// Since is when Connected last changed; Reason is why there is no connection.
	Since  time.Time
	Reason string
	// Version is 5 or 4, which is MQTT 3.1.1.
	Version byte
}

// State returns the present state.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Changed returns a channel that is closed when the State changes.
func (c *Client) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// VersionName returns what people call a version: 3.1.1 or 5.
func VersionName(version byte) string {
	if version == version4 {
		return "3.1.1"
	}
	return "5"
}

// connect opens a connection with MQTT 5, or with 3.1.1 if the broker refuses that.
func (c *Client) connect(ctx context.Context) (*Conn, error) {
	if time.Now().Before(c.oldUntil) {
		conn, err := c.open(ctx, codec4{})
		if errors.Is(err, errVersion) {
			c.oldUntil = time.Time{} // it was updated
		}
		return conn, err
	}
	conn, err := c.open(ctx, codec5{})
	if !errors.Is(err, errVersion) && !errors.Is(err, errSilent) {
		return conn, err
	}
	conn, old := c.open(ctx, codec4{})
	if old != nil {
		if errors.Is(old, errVersion) {
			return nil, err
		}
		return nil, old
	}
	c.oldUntil = time.Now().Add(oldVersionTime)
	return conn, nil
}

// open opens a connection and logs in.
func (c *Client) open(ctx context.Context, codec codec) (*Conn, error) {
	password, err := c.cfg.password()
	if err != nil {
		return nil, err
	}
	socket, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	defer stop()
	return c.attach(socket, codec, password)
}

// attach logs in on a socket.
func (c *Client) attach(socket net.Conn, codec codec, password string) (*Conn, error) {
	conn := &Conn{codec: codec, conn: socket, in: newReadAhead(readAheadLimit), out: newQueue(), log: c.log}
	conn.frames = bufio.NewReaderSize(conn.in, 64<<10)
	socket.SetDeadline(time.Now().Add(connectTimeout))
	conn.tasks.Go(func() { conn.in.fill(socket) })
	answer, err := conn.login(codec.connect(&c.cfg, password, c.keepAlive))
	if err != nil {
		socket.Close()
		conn.in.close()
		conn.tasks.Wait()
		return nil, err
	}
	socket.SetDeadline(time.Time{})
	conn.limits, conn.properties = answer.limits, answer.properties
	conn.limits.keepAlive = min(conn.limits.keepAlive, c.keepAlive)
	conn.start()
	return conn, nil
}

// login sends CONNECT and returns the answer if that is good.
func (c *Conn) login(connect []byte) (packet, error) {
	_, err := c.conn.Write(connect)
	var first byte
	var body []byte
	if err == nil {
		first, body, err = readFrame(c.frames, false)
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return packet{}, errForeign
	case isClosed(err):
		if _, plain := c.conn.(*net.TCPConn); plain {
			return packet{}, fmt.Errorf("%w. If it expects TLS, use mqtts://", errSilent)
		}
		return packet{}, fmt.Errorf("%w. It may want a certificate of this client: set cert and key", errSilent)
	case isTimeout(err):
		return packet{}, errors.New("the broker accepted the connection and then said nothing: check the port in url")
	case err != nil:
		return packet{}, lostError(err)
	}
	p, err := decode(c.codec, first, body)
	if err != nil || p.kind != connack {
		return packet{}, errForeign
	}
	return p, connackError(c.Version(), p)
}

// dial opens the socket.
func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	secure, address, err := c.cfg.endpoint()
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	host, _, _ := net.SplitHostPort(address)
	dialer := &net.Dialer{Timeout: connectTimeout}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var conn net.Conn
	if secure {
		config, err := c.cfg.tls(host)
		if err != nil {
			return nil, err
		}
		conn, err = (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, dialError(host, address, err)
		}
		return conn, nil
	}
	if conn, err = dialer.DialContext(ctx, "tcp", address); err != nil {
		return nil, dialError(host, address, err)
	}
	return conn, nil
}

// isTimeout reports whether an operation took too long.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
