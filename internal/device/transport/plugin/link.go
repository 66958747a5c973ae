package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/program"
)

// Link is a Link to a process. Closing it ends the process.
type Link struct {
	*transport.Stream
	process *program.Process
}

// pipes are the ends of a process's input and output on this side.
type pipes struct {
	in  pipe // to the process
	out pipe // from the process
}

// pipe is one end of a pipe.
type pipe interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

func (p pipes) Read(b []byte) (int, error)         { return p.out.Read(b) }
func (p pipes) Write(b []byte) (int, error)        { return p.in.Write(b) }
func (p pipes) SetReadDeadline(t time.Time) error  { return p.out.SetReadDeadline(t) }
func (p pipes) SetWriteDeadline(t time.Time) error { return p.in.SetWriteDeadline(t) }
func (p pipes) Close() error                       { return errors.Join(p.in.Close(), p.out.Close()) }

// conn is the byte stream of a Link.
type conn struct {
	pipes
	process  *program.Process
	patience time.Duration
	once     sync.Once
}

// Close closes both pipes, and waits until the process is gone.
func (c *conn) Close() (err error) {
	c.once.Do(func() {
		err = c.pipes.Close()
		c.process.End(c.patience)
	})
	return err
}

// open starts a plugin.
func (c *Connector) open(ctx context.Context, p Plugin) (transport.Link, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ours, in, out, release, err := makePipes()
	if err != nil {
		return nil, err
	}
	process, err := p.Command.Start(in, out, newErrorLog(c.log.With("device", p.Name)))
	release()
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("starting the plugin: %w", err)
	}
	info := transport.Info{
		Transport: Name, Address: address(p.Name),
		// Servers of older SDKs end when they get a method that they do not know.
		InitializeFirst: true,
	}
	stream := transport.NewStream(&conn{pipes: ours, process: process, patience: c.cfg.Patience}, info, c.cfg.Limits)
	return &Link{stream, process}, nil
}

// exitTime is how long the end of a process is waited for after the end of its output, to
// say why.
const exitTime = time.Second

// Recv implements transport.Link. It says how the process ended.
func (l *Link) Recv(ctx context.Context) (transport.Message, error) {
	m, err := l.Stream.Recv(ctx)
	if err == nil || ctx.Err() != nil || errors.Is(err, transport.ErrTooLong) || errors.Is(err, transport.ErrClosed) {
		return m, err
	}
	wait := time.NewTimer(exitTime)
	defer wait.Stop()
	select {
	case <-l.process.Ended():
	case <-ctx.Done():
		return m, err
	case <-wait.C:
		return m, errors.New("the plugin closed its output")
	}
	if ended := l.process.Err(); ended != nil {
		return m, fmt.Errorf("the plugin ended: %w", ended)
	}
	return m, errors.New("the plugin ended")
}
