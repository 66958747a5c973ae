package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// recentTime limits how long stored events are read.
const recentTime = 5 * time.Second

// Recent returns the last stored events of a device at all nodes, in the order in which
// they were stored. A stop of everything is an event of the gateway, not of the device.
func (s *Streams) Recent(ctx context.Context, device string, limit int) ([]ferrule.Event, error) {
	h := s.shared.Load()
	if h == nil {
		return nil, fmt.Errorf("stored events cannot be read: %s", s.options.Problem())
	}
	if err := ferrule.CheckID(device); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, recentTime)
	defer cancel()
	consumer, err := h.events.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{s.names.Subject("event.*." + device + ".>")}, InactiveThreshold: 3 * silence,
	})
	if err != nil {
		return nil, fmt.Errorf("reading stored events: %w", err)
	}
	defer engine.DeleteConsumer(ctx, h.events, consumer)
	if consumer.CachedInfo().NumPending == 0 {
		return nil, nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, fmt.Errorf("reading stored events: %w", err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	return s.lastEvents(messages, limit)
}

// lastEvents reads to the end, and returns the last events.
func (s *Streams) lastEvents(messages jetstream.MessagesContext, limit int) (all []ferrule.Event, err error) {
	for {
		msg, err := messages.Next(jetstream.NextMaxWait(recentTime))
		if err != nil {
			return all, errors.New("reading stored events: the cluster does not answer")
		}
		meta, err := msg.Metadata()
		if err != nil {
			return all, err
		}
		if e, _, err := parseEvent(s.names, &nats.Msg{Subject: msg.Subject(), Header: msg.Headers(), Data: msg.Data()}); err == nil { // else no node wrote it
			if len(all) == limit {
				copy(all, all[1:])
				all = all[:limit-1]
			}
			all = append(all, e)
		}
		if meta.NumPending == 0 {
			return all, nil
		}
	}
}
