package inbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// ErrPlain means that a device connected without TLS to a listener that has a certificate.
var ErrPlain = errors.New("it connected without TLS, and dial_in.tls is set; enter the https:// URL on the device. On MQTT, stock firmware uses TLS only at port 8883")

// TCP returns the TCP connection of conn, also below TLS; nil if there is none.
func TCP(conn net.Conn) *net.TCPConn {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	tcp, _ := conn.(*net.TCPConn)
	return tcp
}

// Handshake completes the TLS handshake of conn, if it uses TLS. The connection is unusable
// after an error.
func Handshake(ctx context.Context, conn net.Conn, limit time.Duration) error {
	encrypted, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return explainHandshake(encrypted.HandshakeContext(ctx))
}

// FailedHandshake returns why the TLS handshake of a closed connection failed, or nil if it
// did not, or if the peer just went away.
func FailedHandshake(conn net.Conn) error {
	encrypted, ok := conn.(*tls.Conn)
	if !ok || encrypted.ConnectionState().HandshakeComplete {
		return nil
	}
	err := encrypted.Handshake() // returns the error of the handshake that was tried
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return explainHandshake(err)
}

// explainHandshake says what the failure of a handshake means.
func explainHandshake(err error) error {
	var plain tls.RecordHeaderError
	var op *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &plain):
		return ErrPlain
	case errors.As(err, &op) && op.Op == "remote error":
		return fmt.Errorf("it ended the TLS handshake, probably because it does not trust the certificate: %w", op.Err)
	}
	return fmt.Errorf("the TLS handshake failed: %w", cleanError(err))
}
