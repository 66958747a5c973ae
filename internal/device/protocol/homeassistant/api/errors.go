package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"syscall"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
	"github.com/ferrulehq/ferrule/internal/device/transport/websocket"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ErrUnsent is the error of a request if nothing was sent.
var ErrUnsent = transport.ErrUnsent

// unsent returns the error for a message that was not sent at all.
func unsent(err error) error { return fmt.Errorf("%w: %w", ErrUnsent, err) }

// errForeign means that something else than Home Assistant answers, or that it is broken.
var errForeign = errors.New("what answers there is not the API of Home Assistant: check the address")

// Error is an answer of Home Assistant. Its text is cleaned, but may repeat what was sent.
type Error struct{ Code, Message string }

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// refusals are the codes of requests that had no effect.
var refusals = []string{
	"not_found", "invalid_format", "service_validation_error", "unauthorized", "not_allowed",
	"not_supported", "unknown_command", "id_reuse",
}

// Refused reports that the request had no effect. Otherwise it failed, perhaps in part.
func (e *Error) Refused() bool { return slices.Contains(refusals, e.Code) }

// loss is why a connection broke.
type loss struct{ err, meaning error }

var errLeft = errors.New("Home Assistant closed the connection")

// losses are the errors of a broken connection in words. The numbers are those of Windows.
var losses = []loss{
	{inbound.ErrPeerClosed, errLeft}, {syscall.ECONNRESET, errLeft}, {syscall.EPIPE, errLeft}, {syscall.Errno(10053), errLeft}, {syscall.Errno(10054), errLeft},
	{inbound.ErrSilent, errors.New("Home Assistant stopped answering")},
	{inbound.ErrNotReading, errors.New("Home Assistant does not read what is sent to it")},
	{transport.ErrClosed, errors.New("the connection was closed here")},
}

// lostError describes why a connection broke.
func lostError(err error) error {
	i := slices.IndexFunc(losses, func(l loss) bool { return errors.Is(err, l.err) })
	switch {
	case i < 0:
		return err
	case errors.Is(err, ErrUnsent):
		return unsent(losses[i].meaning)
	}
	return losses[i].meaning
}

// dialError describes why a connection could not be opened, and what to do.
func dialError(address string, err error) error {
	host, path := ferrule.Clean(address, 200), ""
	if u, parseErr := url.Parse(address); parseErr == nil {
		host, path = ferrule.Clean(u.Host, 200), ferrule.Clean(u.Path, 200)
	}
	var dns *net.DNSError
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return fmt.Errorf("host %s is not known: check the address of Home Assistant, and the name service of this machine", host)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.Errno(10061)):
		return fmt.Errorf("nothing listens at %s: check that Home Assistant runs, and its address", host)
	case errors.As(err, &authority):
		return fmt.Errorf("the certificate of %s is from an unknown authority: name a file with its certificate in ca, or add it to the certificates of this machine", host)
	case errors.As(err, &hostname):
		return fmt.Errorf("the certificate of %s is for another name: use that name in the address", host)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("the certificate of %s has expired or is not valid yet: renew it, and check the clocks", host)
	case errors.As(err, &record):
		return fmt.Errorf("%s does not speak TLS: use http:// in the address", host)
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer from %s: check the address of Home Assistant, the network and firewalls", host)
	}
	var status websocket.StatusError
	if errors.As(err, &status) {
		return statusError(host, path, int(status))
	}
	return fmt.Errorf("%s: %w", host, lostError(err))
}

// statusError describes the HTTP status with which a WebSocket was refused. The path is that of the
// address: people copy the one of a page from their browser.
func statusError(host, path string, status int) error {
	hint := "check the address of Home Assistant"
	switch {
	case status == http.StatusForbidden:
		hint = "it may have banned this machine after wrong passwords: remove its address from ip_bans.yaml, and restart Home Assistant"
	case path != "" && status < 500:
		hint = fmt.Sprintf("leave out %s in the address of Home Assistant", path)
	case status >= 300 && status < 400:
		hint = "use the address that it redirects to"
	case status >= 500:
		hint = "Home Assistant may be starting"
	}
	return fmt.Errorf("%s refused the connection with status %d %s: %s", host, status, http.StatusText(status), hint)
}
