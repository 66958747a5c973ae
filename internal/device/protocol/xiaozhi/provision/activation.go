package provision

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"math/big"
	"sync"
	"time"
)

// Activation implements Admission: an unknown device shows a code, and is admitted when
// its owner enters that code.
type Activation struct {
	credentials *Credentials
	log         *slog.Logger

	mu      sync.Mutex
	waiting map[clientKey]*waiting
}

// clientKey includes the client id, so that another device with the same address does
// not take over the code.
type clientKey struct{ address, clientID string }

// waiting is a device that shows a code.
type waiting struct {
	identity Identity
	code     string
	since    time.Time // first request
	asked    time.Time // last request
}

// Waiting is a device that shows a code.
type Waiting struct {
	Identity Identity
	Code     string
	Since    time.Time
}

const (
	// maxWaiting is how many devices can show a code at a time. One host cannot send
	// so many requests before a waiting device repeats its own.
	maxWaiting = 512
	// maxLogged is how many of them are logged at level info. More are a flood, and
	// each device shows its code anyway.
	maxLogged = 16
	// codeTime is how long a code is valid after the last request. A device asks every
	// few seconds, and pauses after half a minute.
	codeTime = 10 * time.Minute
)

// NewActivation returns an Admission for the devices that are unknown to credentials.
func NewActivation(c *Credentials, log *slog.Logger) *Activation {
	return &Activation{credentials: c, log: log, waiting: make(map[clientKey]*waiting)}
}

// Code implements Admission.
func (a *Activation) Code(_ context.Context, id Identity) (code string) {
	if a.credentials.Known(id) {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropExpired()
	key := clientKey{id.Address, id.ClientID}
	w := a.waiting[key]
	if w == nil {
		if len(a.waiting) >= maxWaiting {
			a.dropOldest()
		}
		w = &waiting{identity: id, code: a.newCode(), since: time.Now()}
		a.waiting[key] = w
		log := a.log.Debug
		if len(a.waiting) <= maxLogged {
			log = a.log.Info
		}
		log(fmt.Sprintf("new device shows a code: run `ferrule adopt %s` to admit it", w.code), "address", id.Address, "board", id.Board)
	}
	w.asked = time.Now()
	return w.code
}

// Admit admits the device that shows a code, and returns its address. It returns false
// if no device shows the code.
func (a *Activation) Admit(code string) (address string, ok bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropExpired()
	for key, w := range a.waiting {
		if w.code == code {
			if err := a.credentials.Admit(w.identity); err != nil {
				return "", true, err
			}
			delete(a.waiting, key)
			return key.address, true, nil
		}
	}
	return "", false, nil
}

// Waiting returns the devices that show a code, in no order.
func (a *Activation) Waiting() []Waiting {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropExpired()
	all := make([]Waiting, 0, len(a.waiting))
	for _, w := range a.waiting {
		all = append(all, Waiting{w.identity, w.code, w.since})
	}
	return all
}

func (a *Activation) dropExpired() {
	for key, w := range a.waiting {
		if time.Since(w.asked) > codeTime {
			delete(a.waiting, key)
		}
	}
}

func (a *Activation) dropOldest() {
	var oldest *waiting
	for _, w := range a.waiting {
		if oldest == nil || w.asked.Before(oldest.asked) {
			oldest = w
		}
	}
	delete(a.waiting, clientKey{oldest.identity.Address, oldest.identity.ClientID})
}

// newCode returns six digits that no other device shows.
func (a *Activation) newCode() string {
	for {
		n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
		if err != nil { // it never fails
			panic(err)
		}
		code := fmt.Sprintf("%06d", n)
		taken := false
		for _, w := range a.waiting {
			taken = taken || w.code == code
		}
		if !taken {
			return code
		}
	}
}
