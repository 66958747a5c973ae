package transporttest_test

import (
	"io"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
)

func TestPipe(t *testing.T) {
	transporttest.RunLines(t, func(t *testing.T) (transport.Link, io.ReadWriteCloser) {
		link, far := transporttest.Pipe(transport.Info{})
		t.Cleanup(func() { link.Close(); far.Close() })
		return link, far
	})
}
