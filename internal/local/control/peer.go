package control

import (
	"context"
	"net"
	"os"
	"os/user"
	"strconv"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// peerKey is the key of the user at the other end of a connection.
type peerKey struct{}

// withPeer stores the user at the other end of a connection, if the system tells.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	uid, ok := peerUser(socket)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, uid)
}

// peerName returns the name of a caller as it is recorded. A person is the user who opened
// the socket, whatever the request says. An agent of another user than the gateway's has
// that user's name before its own, so that it cannot pass for somebody else's.
func peerName(ctx context.Context, p ferrule.Principal) string {
	uid, ok := ctx.Value(peerKey{}).(int)
	switch {
	case !ok:
		return p.Name
	case p.Role == ferrule.Person:
		return userName(uid)
	case uid != os.Getuid():
		return userName(uid) + "/" + p.Name
	}
	return p.Name
}

// userName returns the name of a user, or its number if the user has no name.
func userName(uid int) string {
	number := strconv.Itoa(uid)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return "uid " + number
}
