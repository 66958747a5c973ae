package serial

import (
	"context"
	"flag"
	"os/exec"
	"testing"
	"time"

	"go.bug.st/serial"
	"golang.org/x/sys/unix"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
)

var (
	stallTime = flag.Duration("stall", 5*time.Second, "how long TestStall runs")
	blocking  = flag.Bool("stall-blocking", false, "TestStall reads in a blocking system call, as the library does")
	echo      = flag.Bool("stall-echo", false, "TestStall calls a process that answers at once instead of a board")
)

// openTarget returns the port of a board, or of an echo process, which is many times
// faster.
func openTarget(t *testing.T) (path string) {
	t.Helper()
	if !*echo {
		return uno.Start(t, uno.Options{Fast: true}).Path()
	}
	master, path := openPTY(t)
	withFD(master, func(fd int) { unix.SetNonblock(fd, false) }) // cat cannot handle EAGAIN
	cat := exec.Command("cat")
	cat.Stdin, cat.Stdout = master, master
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cat.Process.Kill()
		cat.Wait()
	})
	return path
}

// blockingConn reads and writes as the library does.
type blockingConn struct{ serial.Port }

func (blockingConn) SetReadDeadline(time.Time) error  { return nil }
func (blockingConn) SetWriteDeadline(time.Time) error { return nil }

var garbage []byte

// TestStall calls a board as fast as it answers while the garbage collector runs. A
// read that blocks in a system call can then stop the whole process until the next
// timer, which may be a minute away. The test sets no timer meanwhile, so a stop shows
// as a long call.
func TestStall(t *testing.T) {
	figure.Only(t)
	path := openTarget(t)
	var conn transport.Conn
	var err error
	if *blocking {
		var port serial.Port
		port, err = serial.Open(path, &serial.Mode{BaudRate: DefaultBaud})
		conn = blockingConn{port}
	} else {
		conn, err = openPort(path, DefaultBaud, ResetOpen)
	}
	if err != nil {
		t.Fatal(err)
	}
	link := transport.NewStream(conn, transport.Info{}, transport.DefaultLimits())
	defer link.Close()
	answers := make(chan struct{}, 1)
	go func() {
		defer close(answers)
		for {
			m, err := link.Recv(context.Background())
			if err != nil {
				return
			}
			if m.Data[0] == '{' {
				answers <- struct{}{}
			}
		}
	}()
	call := func() {
		if _, err := conn.Write([]byte(`{"jsonrpc":"2.0","id":7,"method":"gpio_read","params":{"pin":13}}` + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	for ready := false; !ready; { // the board ignores requests while it boots
		call()
		select {
		case <-answers:
			ready = true
		case <-time.After(time.Second):
		}
	}
	for quiet := false; !quiet; { // late answers to those requests
		select {
		case <-answers:
		case <-time.After(2 * time.Second):
			quiet = true
		}
	}
	defer time.AfterFunc(*stallTime+time.Minute, func() { link.Close() }).Stop() // in case an answer is lost

	calls := 0
	var longest time.Duration
	for end := time.Now().Add(*stallTime); time.Now().Before(end); calls++ {
		start := time.Now()
		call()
		if _, ok := <-answers; !ok {
			t.Fatalf("no answer to call %d", calls)
		}
		for range 10 {
			garbage = make([]byte, 32<<10)
		}
		longest = max(longest, time.Since(start))
	}
	t.Logf("%d calls", calls)
	figure.AtMost(t, "the longest call", longest, 500*time.Millisecond)
}
