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

// certificate is the TLS certificate of a listener. It is read again when its files
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

// pair is a certificate with its key, and the stamp that their files had before they were
// read.
type pair struct {
	files config.TLS
	*tls.Certificate
	stamp stamp
}

func openCertificate(files config.TLS, log *slog.Logger) (*certificate, error) {
	c := &certificate{log: log}
	p, err := readPair(files)
	if err != nil {
		return nil, err
	}
	c.set(p)
	return c, nil
}

// readPair reads a certificate and its key. It returns nil if no files are named.
func readPair(files config.TLS) (*pair, error) {
	if files == (config.TLS{}) {
		return nil, nil
	}
	s := stampOf(files)
	now, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: %s and %s: %w", files.Cert, files.Key, err)
	}
	return &pair{files, &now, s}, nil
}

func (c *certificate) set(p *pair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files, c.current, c.stamp, c.looked = p.files, p.Certificate, p.stamp, time.Now()
}

// replace replaces the certificate, and reports whether it is another one.
func (c *certificate) replace(p *pair) (changed bool) {
	c.mu.Lock()
	changed = !slices.EqualFunc(c.current.Certificate, p.Certificate.Certificate, bytes.Equal)
	c.mu.Unlock()
	c.set(p)
	return changed
}

// get implements tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < lookEvery {
		return c.current, nil
	}
	c.looked = time.Now()
	s := stampOf(c.files)
	if s == c.stamp {
		return c.current, nil
	}
	now, err := readPair(c.files)
	if c.stamp = s; err != nil { // it is read again after the next change
		c.log.Warn("the changed certificate cannot be used; the previous one stays in use", "err", err)
		return c.current, nil
	}
	c.current = now.Certificate
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
