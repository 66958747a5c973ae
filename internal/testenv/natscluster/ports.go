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

// ports is where a server listens.
type ports struct {
	client, leaf, cluster, monitor string
}

// Ports are taken in blocks, below those that a system hands out by itself, because
// a server that comes again must find its own still free. The first port of a block
// says that the others are taken: whoever listens at it on loopback has them all,
// and so no two servers of any test that runs now have the same.
const (
	firstBlock = 20000
	blocks     = 2400
	blockSize  = 5
)

// Port takes a port of loopback until the test ends, for a server that comes again at
// its own.
func Port(t testing.TB) int {
	t.Helper()
	p, err := takePorts(t, Place{Host: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	port, _ := strconv.Atoi(p.client)
	return port
}

// takePorts takes a block of ports until the test ends.
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

// free tells whether nobody listens at some ports. An address of another namespace
// cannot be tried.
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
