package terminal

import (
	"context"
	"os"
)

// ReadSecret is ReadLine for a password or a token: a terminal does not show it.
func ReadSecret(ctx context.Context, in *os.File) string {
	restore := hide(in)
	defer restore()
	return ReadLine(ctx, in)
}
