package engine

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrStale means that a value was changed by another node since it was read.
	ErrStale = errors.New("changed by another node meanwhile")
	// ErrStuck means that the server in this process must be restarted: after its
	// disk was full it does not write again, even if there is space.
	ErrStuck = errors.New("NATS no longer writes to its store")
)

// Server error codes that the library does not name.
const (
	codeNoResources    = 10023
	codeNotLastSubject = 10164
)

// AsStale returns ErrStale for the errors by which a server rejects an old revision,
// and other errors unchanged.
func AsStale(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == codeNotLastSubject) {
		return ErrStale
	}
	return err
}

// Stuck reports whether a server in this process fails to write although its disk and
// its store have space.
func (e *Engine) Stuck(err error) bool { return !storeFull(err) && e.checkDisk() == nil }

// storeFull reports whether a server rejected a write because its store is full.
func storeFull(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == codeNoResources
}

// checkDisk writes a temporary file next to the server's files and returns why that
// failed.
func (e *Engine) checkDisk() error {
	file, err := os.CreateTemp(e.dir, "check-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(make([]byte, 256<<10))
	return errors.Join(err, file.Sync(), file.Close())
}

// Explain returns an error with the likely cause of a failed read or write: a server
// whose disk is full just does not answer, and neither does a hub that is unreachable.
func (e *Engine) Explain(err error) error {
	if unreachable := e.Unreachable(); unreachable != nil {
		return fmt.Errorf("%s: %w; retrying", e.serverNames(), unreachable)
	}
	if e.cfg.Mode == Leaf && errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("the hub at %s does not answer, or %q is not its JetStream domain; retrying", e.serverNames(), e.cfg.Domain)
	}
	if !e.cfg.Alone() {
		return err
	}
	if full := e.checkDisk(); full != nil {
		return fmt.Errorf("cannot write to the disk of the data directory: %w", full)
	}
	if storeFull(err) {
		return fmt.Errorf("the store is full (%d MiB); raise `store` under `cluster` in the config: %w", e.cfg.Store>>20, err)
	}
	return err
}

// serverNames lists the servers without the secrets in their addresses.
func (e *Engine) serverNames() string {
	if e.cfg.Alone() {
		return "NATS in this process"
	}
	var all []string
	for _, s := range e.cfg.Servers {
		if u, err := url.Parse(s); err == nil {
			all = append(all, u.Scheme+"://"+u.Host)
		}
	}
	return strings.Join(all, ", ")
}
