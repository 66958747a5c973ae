package natscluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"testing"
)

// ports are the ports of a server.
type ports struct {
	client, leaf, cluster, monitor string
}

// Ports are taken in blocks below the ephemeral range, so that they are still free when a
// server restarts. The first port of a block is a lock: the process that listens on it
// owns the others. So tests that run at the same time do not share ports.
const (
	firstBlock = 20000
	blocks     = 2400
	blockSize  = 5
)

// Port reserves a port on loopback until the test ends, for a server that restarts.
func Port(t testing.TB) int {
	t.Helper()
	p, err := takePorts(t, Place{Host: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	port, _ := strconv.Atoi(p.client)
	return port
}

// takePorts reserves a block of ports until the test ends.
func takePorts(t testing.TB, p Place) (ports, error) {
	for range 1000 {
		first := firstBlock + blockSize*rand.IntN(blocks)
		taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first))
		if err != nil {
			continue
		}
		if !free(p, first+1, first+2, first+3, first+4) {
			taken.Close()
			continue
		}
		t.Cleanup(func() { taken.Close() })
		return ports{strconv.Itoa(first + 1), strconv.Itoa(first + 2), strconv.Itoa(first + 3), strconv.Itoa(first + 4)}, nil
	}
	return ports{}, errors.New("no free ports at " + p.Host)
}

// free reports whether ports are free. Those of another network namespace cannot be
// tested and count as free.
func free(p Place, all ...int) bool {
	for _, port := range all {
		l, err := net.Listen("tcp", net.JoinHostPort(p.Host, strconv.Itoa(port)))
		if elsewhere := errors.Is(err, syscall.EADDRNOTAVAIL) && p.Prefix != nil; err != nil && !elsewhere {
			return false
		}
		if l != nil {
			l.Close()
		}
	}
	return true
}
