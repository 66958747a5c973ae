package localca

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"rsc.io/qr"
)

// Help and Example describe `ferrule tls init`.
const (
	Help = `Make a certificate for this gateway, and a certificate authority (CA) that signs it, for
a network without public names. Nothing is sent anywhere, and no gateway is needed.

The certificate is for this machine's names, its addresses in the local network, and each
--name. It is valid for 397 days; a gateway that uses it renews it in time. To add a name,
run the command again: the CA stays, so nobody has to trust another one.

The CA is valid for ten years. It can sign only for local networks and for the names that
it was made for, so its key is useless against public web sites.

The output has the lines for ferrule.yaml, and the root certificate that agents, phones
and browsers have to trust: as a file, and as a QR code with the URL at which the gateway
serves it.`
	Example = "  ferrule tls init\n  ferrule tls init --name ferrule.home.arpa --name 192.168.1.10"
)

// RootPath is the path at which a gateway serves the root certificate. Phones install
// a file that ends so.
const RootPath = "/ca.crt"

// RootURL returns the URL of the root certificate on a gateway that will serve HTTPS at
// an address such as 0.0.0.0:3377.
func (m Made) RootURL(listen string) string {
	_, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" {
		port = "3377"
	}
	return "https://" + net.JoinHostPort(m.Host, port) + RootPath
}

// Print writes what was made and what to do with it. Listen is the present address of the
// gateway. Paint colors a line of the QR code.
func (m Made) Print(w io.Writer, listen string, paint func(line string) string) error {
	url := m.RootURL(listen)
	code, err := draw(url)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(code, "\n"), "\n")
	for i, line := range lines {
		lines[i] = paint(line)
	}
	first := "Made a certificate authority, and a certificate of this gateway signed by it."
	if !m.NewCA {
		first = "Made another certificate of this gateway. The certificate authority is the one that was there."
	}
	_, port, _ := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(url, "https://"), RootPath))
	_, err = fmt.Fprintf(w, `%s
It is valid until %s, for %s.

Add this to ferrule.yaml, then restart the gateway:

listen: 0.0.0.0:%s
tls:
  cert: %s
  key: %s

Agents, phones and browsers have to trust the root certificate:

  file         %s
  SHA-256      %s
  from phones  %s

%s

Compare the SHA-256 before you trust a certificate that you downloaded. Keep the key of
the CA secret: its owner can pretend to be any machine of your network. It is
%s.
`, first, m.Expires.Format(time.DateOnly), strings.Join(m.Names, ", "), port, m.Cert, m.Key, m.CA, wrapped(m.Fingerprint), url, strings.Join(lines, "\n"), m.CAKey)
	return err
}

// wrapped returns a fingerprint in two lines, which fit a terminal.
func wrapped(fingerprint string) string {
	half := len(fingerprint)/2 + 1
	return fingerprint[:half] + "\n               " + fingerprint[half:]
}

// quiet is the width of the margin that readers of QR codes need.
const quiet = 4

// draw draws a QR code with two rows in each line. It is for a dark background: light
// modules are drawn.
func draw(text string) (string, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return "", err
	}
	light := func(x, y int) bool { return !code.Black(x, y) } // outside, too
	var b strings.Builder
	for y := -quiet; y < code.Size+quiet; y += 2 {
		for x := -quiet; x < code.Size+quiet; x++ {
			below := y+1 < code.Size+quiet && light(x, y+1)
			switch above := light(x, y); {
			case above && below:
				b.WriteRune('█')
			case above:
				b.WriteRune('▀')
			case below:
				b.WriteRune('▄')
			default:
				b.WriteRune(' ')
			}
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}
