// Command idle measures the memory of an idle WebSocket in a server process, for each
// of the libraries that were considered. It is a separate module, so that the gateway
// does not depend on the libraries it does not use.
//
//	go run . [-n 1500]
//
// Each library is measured in a process of its own, and dialed from another.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	coder "github.com/coder/websocket"
	"github.com/gobwas/ws"
	"github.com/gorilla/websocket"
	"github.com/lxzan/gws"
)

func main() {
	n := flag.Int("n", 1500, "number of connections")
	serve := flag.String("serve", "", "measure this library")
	dial := flag.String("dial", "", "dial this address and wait")
	flag.Parse()
	var err error
	switch {
	case *serve != "":
		err = measure(*serve, *n)
	case *dial != "":
		err = dialAll(*dial, *n)
	default:
		for _, name := range []string{"tcp", "gobwas", "gorilla", "coder", "gws"} {
			err = errors.Join(err, rerun(os.Stdout, nil, "-serve", name, "-n", fmt.Sprint(*n)))
		}
	}
	if err != nil {
		log.Fatal(err)
	}
}

// rerun runs this program with other arguments.
func rerun(out io.Writer, in io.Reader, args ...string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, os.Stderr
	return cmd.Run()
}

// upgrades accept one connection each, with a goroutine that waits for a message. They
// send on ready when it is waiting.
var upgrades = map[string]func(w http.ResponseWriter, r *http.Request, ready chan<- bool){
	"gobwas": func(w http.ResponseWriter, r *http.Request, ready chan<- bool) {
		conn, _, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		go func() {
			ready <- true
			ws.ReadHeader(conn)
		}()
	},
	"gorilla": func(w http.ResponseWriter, r *http.Request, ready chan<- bool) {
		upgrader := websocket.Upgrader{ReadBufferSize: 1024, WriteBufferSize: 1024}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		go func() {
			ready <- true
			conn.NextReader()
		}()
	},
	"coder": func(w http.ResponseWriter, r *http.Request, ready chan<- bool) {
		conn, err := coder.Accept(w, r, nil)
		if err != nil {
			return
		}
		ready <- true
		conn.Reader(r.Context()) // the connection does not outlive the handler
	},
	"gws": func(w http.ResponseWriter, r *http.Request, ready chan<- bool) {
		upgrader := gws.NewUpgrader(gws.BuiltinEventHandler{}, &gws.ServerOption{ReadBufferSize: 512})
		conn, err := upgrader.Upgrade(w, r)
		if err != nil {
			return
		}
		go func() {
			ready <- true
			conn.ReadLoop()
		}()
	},
}

// measure prints the memory of n connections with one library.
func measure(name string, n int) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ready := make(chan bool)
	if name == "tcp" {
		go acceptAll(ln, ready)
	} else {
		go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { upgrades[name](w, r, ready) }))
	}
	before := used()
	in, hold := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- rerun(os.Stderr, in, "-dial", ln.Addr().String(), "-n", fmt.Sprint(n))
	}()
	for range n {
		select {
		case <-ready:
		case err := <-ended:
			return fmt.Errorf("%s: the dialing process ended early: %v", name, err)
		}
	}
	time.Sleep(500 * time.Millisecond) // let handlers return
	heap, resident := used().since(before, n)
	fmt.Printf("%-8s %6d bytes per idle connection (heap and stacks), %6d resident\n", name, heap, resident)
	hold.Close()
	return <-ended
}

// acceptAll is the baseline: a socket and a goroutine that reads it.
func acceptAll(ln net.Listener, ready chan<- bool) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			r := make([]byte, 4096)
			conn.Read(r) // the WebSocket request
			io.WriteString(conn, "HTTP/1.1 101 \r\n\r\n")
			ready <- true
			conn.Read(make([]byte, 1))
		}()
	}
}

// dialAll opens n connections and keeps them until standard input ends.
func dialAll(address string, n int) error {
	const request = "GET / HTTP/1.1\r\nHost: idle\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
	conns := make([]net.Conn, n)
	for i := range conns {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		io.WriteString(conn, request)
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 101") {
			return fmt.Errorf("connection %d: %q, %v", i, line, err)
		}
		conns[i] = conn
	}
	io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(conns)
	return nil
}

// usage is the memory of a process in bytes.
type usage struct{ heap, resident int64 }

func used() (u usage) {
	for range 3 { // pools are emptied by the second
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.heap = int64(m.HeapAlloc + m.StackInuse)
	var pages int64
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		fmt.Sscan(string(text), new(int64), &pages)
	}
	u.resident = pages * int64(os.Getpagesize())
	return u
}

func (u usage) since(before usage, n int) (heap, resident int64) {
	return (u.heap - before.heap) / int64(n), (u.resident - before.resident) / int64(n)
}
