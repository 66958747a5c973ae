package mqttserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/rpc"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/mqttclient/mcptopics"
)

// session is the session of one client.
type session struct {
	host   *host
	client string
	rpc    string // topic
	first  rpc.Message
	cancel context.CancelFunc
	heard  atomic.Bool // the client has sent something after initialize

	in   chan queued
	size atomic.Int64 // bytes in in

	// Of run.
	seen  map[string]bool // IDs of requests
	order []string        // of seen

	lines rpc.Lines // of the Server

	mu     sync.Mutex
	reason string // why it has ended; empty if it has not
	gone   bool   // the client has ended it
}

// queued is a message of the client that the Server does not have yet.
type queued struct {
	rpc.Message
	size int64
}

// end ends the session. The first reason counts.
func (s *session) end(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == "" {
		s.reason = reason
	}
	s.cancel()
}

// leave ends the session because the client did.
func (s *session) leave(reason string) {
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	s.end(reason)
}

// why returns why the session has ended.
func (s *session) why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason
}

// hasEnded reports whether the session has ended.
func (s *session) hasEnded() bool {
	return s.why() != ""
}

// run runs the session until it or ctx ends.
func (s *session) run(ctx context.Context) {
	defer s.cancel()
	log := s.host.parts.Log.With("client", s.client)
	unsubscribe, err := s.subscribe(ctx)
	if err != nil {
		log.Warn("an agent on the broker cannot be served", "err", err)
		s.host.publish(s.rpc, failure(s.first.ID, rpc.CodeInternal, "the gateway cannot subscribe to the topics of this session"))
		return
	}
	defer unsubscribe()
	log.Info("an agent on the broker began a session")
	in, requests := io.Pipe()
	var served sync.WaitGroup
	served.Go(func() {
		if err := s.host.parts.Server.Serve(ctx, s.host.caller(), 0, in, s); err != nil {
			log.Debug("the session failed", "err", err)
		}
		in.Close()
		s.end("the server ended")
	})
	stop := context.AfterFunc(ctx, func() { requests.Close() })
	defer stop()
	s.feed(ctx, requests)
	s.end("the gateway ends, or its connection to the broker")
	requests.Close()
	served.Wait()
	s.goodbye()
	log.Info("the session of an agent on the broker has ended", "err", s.why())
}

// subscribe subscribes to what the client says, until the returned function is called.
func (s *session) subscribe(ctx context.Context) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	return s.host.conn.Subscribe(ctx, s.take,
		mqttclient.Filter{Topic: mcptopics.ClientPresence(s.client), QoS: 1},
		mqttclient.Filter{Topic: mcptopics.ClientCapability(s.client), QoS: 1},
		mqttclient.Filter{Topic: s.rpc, QoS: 1, NoLocal: true})
}

// goodbye tells the client that the session has ended, unless the client said so.
func (s *session) goodbye() {
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	if gone || s.host.conn.Err() != nil {
		return
	}
	s.host.publish(s.rpc, mcptopics.Disconnected) // the session has ended in any case
}

// take receives a message of the client. It does not block.
func (s *session) take(m mqttclient.Message) {
	if sender := mcptopics.Sender(m); m.Retained || sender != "" && sender != s.client {
		return
	}
	one, ok := decode(m.Payload)
	switch {
	case s.hasEnded():
		return // the message is for the next session of the client
	case !ok:
		s.host.parts.Log.Debug("dropped a message: not JSON-RPC, or too long", "client", s.client)
		return
	case one.Method == mcptopics.MethodDisconnected:
		s.leave("the client ended it")
		return
	case m.Topic == mcptopics.ClientPresence(s.client), one.Method == methodInitialize:
		return
	}
	s.heard.Store(true)
	if size := int64(len(m.Payload)); s.size.Add(size) <= maxQueueBytes {
		select {
		case s.in <- queued{one, size}:
			return
		default:
		}
	}
	s.end("the client sends faster than its messages can be handled")
}

// feed passes the messages of the client to the Server until the session ends.
func (s *session) feed(ctx context.Context, requests io.Writer) {
	if s.forward(requests, s.first) != nil {
		return
	}
	silence := time.NewTimer(pingAfter)
	defer silence.Stop()
	for last := time.Now(); ; {
		select {
		case m := <-s.in:
			s.size.Add(-m.size)
			last = time.Now()
			silence.Reset(pingAfter)
			if s.forward(requests, m.Message) != nil {
				return
			}
		case <-silence.C:
			silence.Reset(pingAfter)
			if time.Since(last) > maxSilence {
				s.end("the client was silent for too long")
			}
			s.ping()
		case <-ctx.Done():
			return
		}
	}
}

// pingID is the ID of pings. The Server does not know them.
var pingID = json.RawMessage(`"ferrule-ping"`)

// ping finds out if the client is gone.
func (s *session) ping() {
	s.send(rpc.Encode(rpc.Message{Version: "2.0", ID: pingID, Method: methodPing}))
}

// forward passes a message to the Server, unless it is a request that came before.
func (s *session) forward(requests io.Writer, m rpc.Message) error {
	line := rpc.Encode(m)
	if err := s.host.parts.Check(line); err != nil {
		s.host.parts.Log.Debug("dropped a message", "client", s.client, "err", err)
		return nil
	}
	switch {
	case s.hasEnded():
		return io.ErrClosedPipe
	case m.Method == "" && bytes.Equal(m.ID, pingID):
		return nil
	case m.Method != "" && m.ID != nil && !s.isNew(string(m.ID)):
		s.host.parts.Log.Warn("dropped a request whose ID was used before; it did not run again", "client", s.client)
		return nil
	}
	_, err := requests.Write(append(line, '\n'))
	return err
}

// isNew reports whether the ID of a request was not used before, and remembers it.
func (s *session) isNew(id string) bool {
	if s.seen[id] {
		return false
	}
	if len(s.order) >= maxIDs {
		delete(s.seen, s.order[0])
		s.order = s.order[1:]
	}
	s.seen[id] = true
	s.order = append(s.order, id)
	return true
}

// Write receives messages of the Server, one per line.
func (s *session) Write(p []byte) (int, error) { return s.lines.Write(p) }

// Close implements io.WriteCloser.
func (s *session) Close() error { return nil }

// pass publishes a message of the Server.
func (s *session) pass(line []byte) error {
	var m rpc.Message
	if err := json.Unmarshal(line, &m); err != nil {
		return err
	}
	if m.ID == nil && isListChange(m.Method) {
		s.host.announce(m.Method, line)
		return nil
	}
	err := s.send(line)
	if errors.Is(err, mqttclient.ErrUnsent) && m.ID != nil && m.Method == "" && !s.hasEnded() && s.host.conn.Err() == nil {
		// It is too long for the broker.
		return s.send(failure(m.ID, rpc.CodeInternal, fmt.Sprintf("The request was handled, but its result cannot be delivered: %v", strings.TrimPrefix(err.Error(), mqttclient.ErrUnsent.Error()+": "))))
	}
	return err
}

// send publishes a message to the client. If nobody gets it, the client is gone.
func (s *session) send(data []byte) error {
	err := s.host.publish(s.rpc, data)
	var undelivered *mqttclient.Undelivered
	if errors.As(err, &undelivered) {
		s.leave("the client is gone: " + undelivered.Reason)
	}
	return err
}
