package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/localca"
)

// config returns the TLS configuration of a listener.
func (c *certificate) config() *tls.Config {
	return &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12}
}

// serve serves HTTP, with TLS unless c is nil.
func (c *certificate) serve(web *http.Server, ln net.Listener) error {
	if c == nil {
		return web.Serve(ln)
	}
	web.TLSConfig = c.config()
	// Without HTTP/2: the limits count connections, and each must carry one request.
	web.TLSConfig.NextProtos = []string{"http/1.1"}
	return web.ServeTLS(ln, "", "")
}

// named returns the files of the certificate.
func (c *certificate) named() config.TLS {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.files
}

// warnUnlessFor logs if the certificate is not for the host of a URL.
func (c *certificate) warnUnlessFor(at string) {
	u, err := url.Parse(at)
	if err != nil || c.current.Leaf == nil {
		return
	}
	if err := c.current.Leaf.VerifyHostname(u.Hostname()); err != nil {
		c.log.Warn("devices cannot connect with TLS, because the certificate is not for the host of dial_in.url", "url", at, "err", err)
	}
}

// serveRoot serves the root certificate that `ferrule tls init` made, for phones to
// install. It is public.
func (c *certificate) serveRoot(w http.ResponseWriter, r *http.Request) {
	files := c.named()
	root, ok := localca.Root(files.Cert, files.Key)
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/x-x509-ca-cert")
	w.Header().Set("Content-Disposition", `attachment; filename="ferrule-ca.crt"`)
	w.Header().Set("Cache-Control", "no-store")
	w.Write(root)
}

// Certificates are looked at every maintainEvery. Other programs renew theirs a month
// before the end, so warnEnd means that something is wrong.
const (
	maintainEvery = 12 * time.Hour
	warnEnd       = 14 * 24 * time.Hour
)

// keepCertificates renews certificates that `ferrule tls init` made, and warns about others
// that end soon, until ctx ends.
func (g *Gateway) keepCertificates(ctx context.Context) error {
	for {
		for _, c := range g.certificates() {
			c.maintain()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(maintainEvery):
		}
	}
}

// certificates returns those of this gateway, each of the same files once.
func (g *Gateway) certificates() (all []*certificate) {
	if g.certificate != nil {
		all = append(all, g.certificate)
	}
	if g.DialIn != nil && g.DialIn.certificate != nil && (g.certificate == nil || g.certificate.named() != g.DialIn.certificate.named()) {
		all = append(all, g.DialIn.certificate)
	}
	return all
}

// maintain renews the certificate, or warns before it ends.
func (c *certificate) maintain() {
	files := c.named()
	renewed, err := localca.Renew(files.Cert, files.Key)
	leaf, unreadable := localca.ReadCertificate(files.Cert)
	switch {
	case unreadable != nil: // get has logged it
	case renewed:
		c.log.Info("the certificate was renewed", "file", files.Cert, "until", leaf.NotAfter.Format(time.DateOnly))
	case err != nil:
		c.log.Warn("the certificate was not renewed", "file", files.Cert, "until", leaf.NotAfter.Format(time.DateOnly), "err", err)
	case time.Until(leaf.NotAfter) < warnEnd:
		c.log.Warn("the certificate ends soon; renew it, or nobody can connect", "file", files.Cert, "until", leaf.NotAfter.Format(time.DateOnly))
	}
}
