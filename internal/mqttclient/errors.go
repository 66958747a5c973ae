package mqttclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ErrUnsent is the error of Publish if no byte was sent.
var ErrUnsent = errors.New("nothing was sent")

// Undelivered is the error of Publish if the broker says that the message went no further.
type Undelivered struct {
	// Denied reports that the rules of the broker forbid it. Otherwise nobody subscribes to
	// the topic.
	Denied bool
	Reason string
}

func (u *Undelivered) Error() string { return u.Reason }

// errLost is the error of a packet that was not written before the connection ended.
var errLost = errors.New("the connection to the broker is lost")

// errVersion means that the broker does not speak a version of MQTT.
var errVersion = errors.New("the broker does not speak this version of MQTT")

// errSilent means that the broker closed the connection instead of answering CONNECT.
var errSilent = errors.New("the broker closed the connection without an answer")

// errForeign means that something else answered CONNECT.
var errForeign = errors.New("what answers there is not an MQTT broker: check the port in url")

// clean makes a text of the broker or of a device safe to show.
func clean(s string) string { return ferrule.Clean(s, 200) }

// reasons are the reason codes of MQTT 5 that brokers send.
var reasons = map[byte]string{
	0x80: "unspecified error",
	0x81: "malformed packet",
	0x82: "protocol error",
	0x83: "not accepted by this broker",
	0x85: "the client ID is not valid",
	0x86: "wrong user or password",
	0x87: "not authorized. Check the rules (ACL) of the broker for this user",
	0x88: "the broker is not available now",
	0x89: "the broker is busy",
	0x8A: "this client is banned",
	0x8B: "the broker is shutting down",
	0x8C: "the broker wants another way to log in",
	0x8D: "the broker heard nothing in time",
	0x8E: "another client connected with the same client ID",
	0x8F: "the topic filter is not valid",
	0x90: "the topic is not valid",
	0x93: "too many messages at once",
	0x95: "the packet is too large for the broker",
	0x96: "too many messages in a short time",
	0x97: "a quota is used up",
	0x98: "an administrator of the broker ended it",
	0x99: "the payload has the wrong format",
	0x9A: "the broker keeps no retained messages",
	0x9B: "the broker does not support this QoS",
	0x9C: "use another server for now",
	0x9D: "the broker has moved to another server",
	0x9E: "the broker has no shared subscriptions",
	0x9F: "too many connections in a short time",
	0xA0: "the longest time for a connection is over",
	0xA2: "the broker has no subscriptions with wildcards",
}

// reasonText describes a reason code, with the words of the broker if it has any.
func reasonText(code byte, words string) string {
	text := reasons[code]
	if text == "" {
		text = fmt.Sprintf("reason 0x%02X", code)
	}
	if words != "" {
		text += fmt.Sprintf(" (the broker says: %s)", clean(words))
	}
	return text
}

// disconnectError describes a DISCONNECT of the broker.
func disconnectError(p packet) error {
	if p.code() == 0 {
		return errors.New("the broker ended the connection")
	}
	return fmt.Errorf("the broker ended the connection: %s%s", reasonText(p.code(), p.reason), elsewhere(p))
}

// elsewhere names the server to which a broker sends its clients. We do not follow:
// the owner chose this one, and the credential is for it.
func elsewhere(p packet) string {
	if p.server == "" {
		return ""
	}
	return fmt.Sprintf(". It names %s: change url if that is right", clean(p.server))
}

// connackError describes the refusal of a CONNECT; nil if it was accepted.
func connackError(version byte, p packet) error {
	code := p.code()
	if version == version4 || code < 0x80 {
		switch code { // the codes of 3.1.1, also in answers to MQTT 5
		case 0:
			return nil
		case 1:
			return errVersion
		case 2:
			code = 0x85
		case 3:
			code = 0x88
		case 4:
			code = 0x86
		case 5:
			code = 0x87
		}
	}
	switch code {
	case 0x84:
		return errVersion
	case 0x86, 0x87: // brokers use both for a wrong password
		return errors.New("the broker refused the login: wrong user or password, or this user may not connect. Check user and password_file")
	}
	return fmt.Errorf("the broker refused the connection: %s%s", reasonText(code, p.reason), elsewhere(p))
}

// dialError describes why a connection could not be opened, and what to do.
func dialError(host, address string, err error) error {
	var dns *net.DNSError
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return fmt.Errorf("host %s is not known: check url, and the name service of this machine", clean(host))
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, wsaConnRefused):
		return fmt.Errorf("nothing listens at %s: check that the broker runs, and url", clean(address))
	case errors.As(err, &authority):
		return fmt.Errorf("the certificate of %s is from an unknown authority: set ca to the file with the certificate of its CA", clean(address))
	case errors.As(err, &hostname):
		return fmt.Errorf("the certificate of %s is for another name: check url, or make a certificate with this name", clean(address))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("the certificate of %s has expired or is not valid yet: renew it, and check the clocks", clean(address))
	case errors.As(err, &record):
		return fmt.Errorf("%s does not speak TLS: use mqtt:// or the port for TLS", clean(address))
	case isClosed(err):
		return fmt.Errorf("%s closed the connection when TLS began: check that its port is one for TLS. It may want a certificate of this client: set cert and key", clean(address))
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no answer from %s: check url, the network and firewalls", clean(address))
	}
	return lostError(err)
}

// lostError describes why a connection broke. The library's texts are kept for what is
// rare.
func lostError(err error) error {
	var alert *net.OpError
	switch {
	case isClosed(err):
		return errors.New("the broker closed the connection")
	case errors.As(err, &alert) && alert.Op == "remote error": // as crypto/tls names it
		return fmt.Errorf("the broker refused TLS (%w). If it wants a certificate of this client, set cert and key", alert.Err)
	}
	return err
}

// The numbers of errors on Windows.
const (
	wsaConnAborted = syscall.Errno(10053)
	wsaConnReset   = syscall.Errno(10054)
	wsaConnRefused = syscall.Errno(10061)
)

// closed are the errors of a connection that the peer ended.
var closed = []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, wsaConnReset, wsaConnAborted}

// isClosed reports whether the peer ended a connection.
func isClosed(err error) bool {
	return slices.ContainsFunc(closed, func(e error) bool { return errors.Is(err, e) })
}
