package mcpserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/auth"
)

// authenticated requires a token of the device, if it has any. A session belongs to
// the token that it began with.
func (d *Device) authenticated(next http.Handler) http.Handler {
	if len(d.config.Tokens) == 0 {
		return next
	}
	const challenge = "WWW-Authenticate"
	verified := auth.RequireBearerToken(d.verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})
	inside := verified(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Del(challenge)
		next.ServeHTTP(w, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(challenge, "Bearer") // the SDK sends it only with OAuth metadata
		inside.ServeHTTP(w, r)
	})
}

// verify compares a token with all tokens in constant time.
func (d *Device) verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	given := sha256.Sum256([]byte(token))
	found := 0
	for i, t := range d.config.Tokens {
		want := sha256.Sum256([]byte(t))
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(given[:], want[:]), i+1, found)
	}
	if found == 0 {
		return nil, fmt.Errorf("%w: unknown token", auth.ErrInvalidToken)
	}
	return &auth.TokenInfo{UserID: strconv.Itoa(found)}, nil
}
