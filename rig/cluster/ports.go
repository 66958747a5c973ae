package cluster

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// ports is where a server listens.
type ports struct {
	client, leaf, cluster, monitor string
}

// freePorts finds four ports. They are below those that a system hands out by
// itself, because a server that comes again must find its own still free.
func freePorts(p Place) (ports, error) {
	var found []string
	for range 1000 {
		port := strconv.Itoa(20000 + rand.IntN(12000))
		l, err := net.Listen("tcp", net.JoinHostPort(p.Host, port))
		if elsewhere := errors.Is(err, syscall.EADDRNOTAVAIL) && p.Prefix != nil; err != nil && !elsewhere {
			continue // an address of another namespace cannot be tried
		}
		if l != nil {
			defer l.Close()
		}
		if found = append(found, port); len(found) == 4 {
			return ports{found[0], found[1], found[2], found[3]}, nil
		}
	}
	return ports{}, errors.New("no free ports at " + p.Host)
}
