package xiaozhi

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"math/big"
	"sync"
	"time"
)

// Activation is a Doorman: a device that is not known shows a code, and is let in
// when its owner says which.
type Activation struct {
	credentials *Credentials
	log         *slog.Logger

	mu      sync.Mutex
	waiting map[visitorKey]*waiting
}

// visitorKey tells visitors apart: who comes with the address of another does not take
// its place.
type visitorKey struct{ address, clientID string }

// waiting is a device that shows a code.
type waiting struct {
	visitor Visitor
	code    string
	asked   time.Time // when it asked last
}

const (
	// maxWaiting is how many devices can show a code at a time. It is more than one
	// host can ask for before a device that waits has asked again.
	maxWaiting = 512
	// maxTold is how many of them are logged loudly. More are a flood, and each shows
	// its code anyway.
	maxTold = 16
	// codeTime is how long a code is good after the device asked last. It asks
	// every few seconds, and gives up for a while after half a minute.
	codeTime = 10 * time.Minute
)

// NewActivation makes a doorman for the devices that credentials do not know.
func NewActivation(c *Credentials, log *slog.Logger) *Activation {
	return &Activation{credentials: c, log: log, waiting: make(map[visitorKey]*waiting)}
}

// Admit implements Doorman.
func (a *Activation) Admit(_ context.Context, v Visitor) (code string) {
	if a.credentials.Knows(v) {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tidy()
	key := visitorKey{v.Address, v.ClientID}
	w := a.waiting[key]
	if w == nil {
		if len(a.waiting) >= maxWaiting {
			a.dropOldest()
		}
		w = &waiting{visitor: v, code: a.newCode()}
		a.waiting[key] = w
		tell := a.log.Debug
		if len(a.waiting) <= maxTold {
			tell = a.log.Info
		}
		tell(fmt.Sprintf("a device waits to be let in, and shows a code: `ferrule adopt %s` lets it in", w.code),
			"address", v.Address, "board", v.Board)
	}
	w.asked = time.Now()
	return w.code
}

// LetIn lets in the device that shows a code, and tells its address. It is false if
// none does.
func (a *Activation) LetIn(code string) (address string, ok bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tidy()
	for key, w := range a.waiting {
		if w.code == code {
			if err := a.credentials.LetIn(w.visitor); err != nil {
				return "", true, err
			}
			delete(a.waiting, key)
			return key.address, true, nil
		}
	}
	return "", false, nil
}

// tidy drops what has not asked for long.
func (a *Activation) tidy() {
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
	delete(a.waiting, visitorKey{oldest.visitor.Address, oldest.visitor.ClientID})
}

// newCode is six digits that no other device shows.
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
