package shared

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxServed limits how many announcements are served at a time; others are received, but
// not answered. So many devices cannot be stopped one by one, and an answer may wait for a
// stop tool.
const maxServed = 512

// answer is what a node says to an announcement. A node may send several.
type answer struct {
	Node string `json:"node"`
	// Key and Version are those of the record that was announced.
	Key     string `json:"key"`
	Version uint64 `json:"version"`
	Data    []byte `json:"data,omitempty"`
}

// Announce writes a record like Put and also sends it to all nodes that are connected
// now. It calls heard with each of their answers, sequentially, until ctx ends. The error
// wraps ErrNotWritten if no message was sent; the record is written later in any case.
func (r *Records) Announce(ctx context.Context, key string, value []byte, heard func(node string, data []byte)) error {
	if value == nil {
		value = []byte{}
	}
	_, connected, err := r.store(key, value)
	if err != nil {
		return err
	}
	r.mu.Lock()
	e, sent := r.engine, *r.records[key]
	r.mu.Unlock()
	if !connected {
		return fmt.Errorf("NATS cannot be reached: %w", ErrNotWritten)
	}
	answers := make(chan answer, 256)
	sub, err := e.Conn.Subscribe(e.Conn.NewRespInbox(), func(msg *nats.Msg) {
		var a answer
		if openJSON(r.key, "answer", msg.Data, &a) != nil || a.Key != key || a.Version != sent.Version || ferrule.CheckID(a.Node) != nil {
			return
		}
		select {
		case answers <- a:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	defer sub.Unsubscribe()
	if err := e.Conn.PublishRequest(r.names.Shared(), sub.Subject, sent.signed); err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	for {
		select {
		case a := <-answers:
			if ctx.Err() == nil {
				heard(a.Node, a.Data)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// announceAgain is how often records that are not in the bucket are announced again.
const announceAgain = time.Second

// announceUnsaved sends the records that are not in the bucket to all nodes, until they
// are or no server is reachable. After a reconnect, messages arrive long before a bucket
// can be written.
func (r *Records) announceUnsaved() {
	r.mu.Lock()
	e := r.engine
	var unsaved [][]byte
	for _, one := range r.records {
		if one.unsaved {
			unsaved = append(unsaved, one.signed)
		}
	}
	if r.announcing || e == nil || len(unsaved) == 0 {
		r.mu.Unlock()
		return
	}
	r.announcing = true
	r.mu.Unlock()
	for _, signed := range unsaved {
		if e.Conn.Publish(r.names.Shared(), signed) != nil {
			break
		}
	}
	time.AfterFunc(announceAgain, func() {
		r.mu.Lock()
		r.announcing = false
		r.mu.Unlock()
		if e.Unreachable() == nil {
			r.announceUnsaved()
		}
	})
}

// Serve sets what answers the announcements of other nodes. It does not wait for
// watchers, which are called with the record too. It may send several answers, each of at
// most MaxValue bytes.
func (r *Records) Serve(fn func(key string, value []byte, reply func(data []byte))) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serve = fn
}

// Connect listens to announcements and uses an engine until Disconnect.
func (r *Records) Connect(e *engine.Engine) error {
	if _, err := e.Conn.Subscribe(r.names.Shared(), func(msg *nats.Msg) { r.announced(e, msg) }); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engine = e
	return nil
}

// Disconnect stops using the engine. The subscription ends with its connection.
func (r *Records) Disconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engine = nil
}

// announced handles an announcement. A copy of an earlier one changes nothing.
func (r *Records) announced(e *engine.Engine, msg *nats.Msg) {
	got, err := parse(r.key, "", msg.Data)
	if err == nil && got.Node == r.names.Node {
		return
	}
	if _, valid := r.receive(got.Key, msg.Data, 0); !valid || msg.Reply == "" {
		return
	}
	r.mu.Lock()
	serve, newest := r.serve, r.records[got.Key]
	current := newest != nil && !newest.newer(got)
	r.mu.Unlock()
	if serve == nil || !current {
		return
	}
	select {
	case r.slots <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-r.slots }()
		serve(got.Key, got.Value, func(data []byte) {
			err := errors.New("too long")
			var text []byte
			if len(data) <= MaxValue {
				text, err = sealJSON(r.key, "answer", answer{Node: r.names.Node, Key: got.Key, Version: got.Version, Data: data})
			}
			if err == nil {
				err = e.Conn.Publish(msg.Reply, text)
			}
			if err != nil {
				r.log.Warn("cluster: an answer to another node was not sent", "node", got.Node, "err", err)
			}
		})
	}()
}
