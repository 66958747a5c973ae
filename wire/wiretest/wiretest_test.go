package wiretest_test

import (
	"io"
	"testing"

	"github.com/ferrulehq/ferrule/wire"
	"github.com/ferrulehq/ferrule/wire/wiretest"
)

func TestPipe(t *testing.T) {
	wiretest.RunLines(t, func(t *testing.T) (wire.Link, io.ReadWriteCloser) {
		link, far := wiretest.Pipe(wire.Info{})
		t.Cleanup(func() { link.Close(); far.Close() })
		return link, far
	})
}
