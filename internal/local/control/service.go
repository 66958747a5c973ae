package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// ServiceSocket is the socket at which the packaged service listens for members of its
// group. Only root and the service can create it.
const ServiceSocket = "/run/ferrule/control.sock"

// ServiceData is the data directory of the packaged service, which only its user can read,
// and ServiceConfig its configuration, which its group can read.
const (
	ServiceData   = "/var/lib/ferrule"
	ServiceConfig = "/etc/ferrule/ferrule.yaml"
)

// serviceGroup is the user and the group of the packaged service.
const serviceGroup = "ferrule"

// PreferService reports whether the packaged service is to be used: no gateway listens on
// the user's own socket, and the service runs. The error is why a service that runs cannot
// be used.
func PreferService(ctx context.Context, own string) (bool, error) {
	if !errors.Is(try(ctx, own), ErrNoGateway) {
		return false, nil
	}
	err := try(ctx, ServiceSocket)
	if errors.Is(err, ErrNoGateway) {
		return false, nil
	}
	return err == nil, err
}

// try opens a socket and closes it.
func try(ctx context.Context, path string) error {
	conn, err := Dial(ctx, path)
	if err == nil {
		conn.Close()
	}
	return err
}

// listenGroup opens a socket for the members of this process's group, in a directory that
// they can enter but not write to.
func listenGroup(path string) (net.Listener, error) {
	info, err := os.Stat(filepath.Dir(path))
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir() || !closedTo(info, 0o027):
		return nil, errors.New("its directory must belong to this user, and be closed to others and read-only for the group")
	}
	return listen(path, 0o660)
}

// addGroup adds the socket for the group.
func (s *Server) addGroup(path string) error {
	ln, err := listenGroup(path)
	if err != nil {
		return fmt.Errorf("control socket %s for the group: %w", path, err)
	}
	s.lns = append(s.lns, ln)
	return nil
}
