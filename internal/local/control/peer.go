package control

import (
	"cmp"
	"context"
	"net"
	"os"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
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

// principal returns the caller at the other end of the socket. The request says whether it
// is an agent, and which program; the system says who runs it. Nothing else that the
// request says about its caller is used, except a person's name if the system is silent.
func principal(ctx context.Context, call *ferrule.Call) ferrule.Principal {
	uid, known := ctx.Value(peerKey{}).(int)
	user := ""
	if known {
		user = identity.User(uid)
	}
	if call.Principal.Role != ferrule.Agent {
		return ferrule.Principal{Role: ferrule.Person, Name: cmp.Or(user, ferrule.Clean(call.Principal.Name, ferrule.MaxWord)), Auth: ferrule.AuthSocket, User: user}
	}
	name := identity.SelfNamed(call.Client.Name)
	if known && uid != os.Getuid() {
		name = identity.OfUser(user, call.Client.Name)
	}
	return ferrule.Principal{Role: ferrule.Agent, Name: name, Auth: ferrule.AuthStdio, User: user}
}
