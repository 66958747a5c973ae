package identity

import (
	"context"
	"errors"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Credential is a token that was accepted.
type Credential struct {
	Who ferrule.Principal
	// Valid ends when the credential is no longer accepted: it was revoked, replaced, or has
	// expired.
	Valid context.Context
	// Device is the only device whose address the credential opens; empty for all of the
	// gateway.
	Device string
}

// Reasons not to accept a credential. A caller that shows one of them is told so; all other
// errors mean that nobody can tell now.
var (
	// ErrUnknown is returned for a credential that is not known, or no longer.
	ErrUnknown = errors.New("unknown token")
	ErrExpired = errors.New("the token has expired")
	// ErrAudience is returned for a token that was made for another server.
	ErrAudience = errors.New("the token is for another server")
)

// Request is what a credential came with.
type Request struct {
	// Resource is the URL that is asked for, as the caller knows it, for example
	// https://gateway.example/mcp; empty if it is not known.
	Resource string
	// From is the address of the caller, without its port.
	From string
	Time time.Time
}

// Verifier checks a credential. It returns ErrUnknown if it is not one that it knows, so
// that another one can be asked. If it knows whose it was, such as of one that was revoked,
// Who says so also with an error; only the journal may use it then.
type Verifier func(ctx context.Context, credential string, r Request) (Credential, error)

// Any asks verifiers one after the other, until one knows the credential. If none does, the
// error is that of the one which says most about it.
func Any(verifiers ...Verifier) Verifier {
	return func(ctx context.Context, credential string, r Request) (Credential, error) {
		unknown := ErrUnknown
		for _, verify := range verifiers {
			c, err := verify(ctx, credential, r)
			if !errors.Is(err, ErrUnknown) || c.Who != (ferrule.Principal{}) {
				return c, err
			}
			if err != ErrUnknown {
				unknown = err
			}
		}
		return Credential{}, unknown
	}
}
