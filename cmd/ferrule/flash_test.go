package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.bug.st/serial"
)

// flash is the command flash PORT, which stands for a program that flashes boards: it
// locks the port, asks the board for its name, prints it, and keeps the port until its
// input ends.
func flash() {
	port, err := serial.Open(os.Args[1], &serial.Mode{BaudRate: 115200})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	port.SetReadTimeout(200 * time.Millisecond)
	var said strings.Builder
	for text := make([]byte, 1024); !strings.Contains(said.String(), `"result"`); {
		io.WriteString(port, `{"jsonrpc":"2.0","id":1,"method":"get_info"}`+"\n")
		for n := 1; n > 0; {
			n, _ = port.Read(text)
			said.Write(text[:n])
		}
	}
	fmt.Println(strings.Join(strings.Fields(said.String()), " "))
	io.Copy(io.Discard, os.Stdin)
	port.Close()
}

// startFlash runs flash and returns when it has talked to the board.
func startFlash(t *testing.T, port string) (cmd *exec.Cmd, letGo func()) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), "flash", port)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 1024)
	n, err := out.Read(said)
	if !strings.Contains(string(said[:n]), `"result":{"device":"rig-uno"`) {
		t.Fatalf("flash says %q, %v", said[:n], err)
	}
	return cmd, func() {
		in.Close()
		cmd.Wait()
	}
}
