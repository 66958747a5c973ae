// Package terminal reads what a person types, and knows the size of the terminal.
package terminal

import (
	"bufio"
	"context"
	"io"
)

// ReadLine returns the next line, which may end with the input. It returns "" on an error,
// and when ctx ends: the person may press Ctrl-C instead.
func ReadLine(ctx context.Context, in io.Reader) string {
	line := make(chan string, 1)
	go func() {
		text, err := bufio.NewReader(in).ReadString('\n')
		if err != nil && err != io.EOF {
			text = "" // an incomplete answer does not count
		}
		line <- text
	}()
	select {
	case text := <-line:
		return text
	case <-ctx.Done():
		return ""
	}
}
