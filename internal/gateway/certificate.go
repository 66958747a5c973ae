package gateway

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// certificate is the TLS certificate of the HTTP server. It is read again when its files
// change: programs that renew certificates only write files. While the files cannot be
// used, the certificate stays as it is.
type certificate struct {
	log *slog.Logger

	mu      sync.Mutex
	files   config.TLS
	stamp   stamp // of the files when they were last read
	looked  time.Time
	current *tls.Certificate
}

// stamp changes when the files of a certificate change.
type stamp struct {
	cert, key fileStamp
}

type fileStamp struct {
	changed time.Time
	size    int64
}

// lookEvery is the minimum time between two looks at the files.
const lookEvery = time.Second

func openCertificate(files config.TLS, log *slog.Logger) (*certificate, error) {
	c := &certificate{log: log}
	now, s, err := readCertificate(files)
	if err != nil {
		return nil, err
	}
	c.set(files, now, s)
	return c, nil
}

// readCertificate reads a certificate, and the stamp that its files had before.
func readCertificate(files config.TLS) (*tls.Certificate, stamp, error) {
	s := stampOf(files)
	now, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, s, fmt.Errorf("tls: %s and %s: %w", files.Cert, files.Key, err)
	}
	return &now, s, nil
}

// set replaces the certificate.
func (c *certificate) set(files config.TLS, now *tls.Certificate, s stamp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files, c.current, c.stamp, c.looked = files, now, s, time.Now()
}

// differs reports whether another certificate is in use.
func (c *certificate) differs(from *tls.Certificate) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.EqualFunc(c.current.Certificate, from.Certificate, bytes.Equal)
}

// get implements tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < lookEvery {
		return c.current, nil
	}
	c.looked = time.Now()
	if stampOf(c.files) == c.stamp {
		return c.current, nil
	}
	now, s, err := readCertificate(c.files)
	if c.stamp = s; err != nil { // it is read again after the next change
		c.log.Warn("the changed certificate cannot be used; the previous one stays in use", "err", err)
		return c.current, nil
	}
	c.current = now
	c.log.Info("the certificate changed and was read again")
	return c.current, nil
}

func stampOf(files config.TLS) stamp {
	one := func(path string) (s fileStamp) {
		if info, err := os.Stat(path); err == nil {
			s = fileStamp{info.ModTime(), info.Size()}
		}
		return s
	}
	return stamp{one(files.Cert), one(files.Key)}
}
