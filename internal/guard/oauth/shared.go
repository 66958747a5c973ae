package oauth

import (
	"encoding/json"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// share shows a grant of this node to the others. The channel is closed when they can see
// it, or cannot be reached; it is nil if there are none.
func (s *Server) share(g *grant) (heard <-chan struct{}) {
	delete(s.unheard, g.id)
	return s.put(g.id, g.sharedGrant)
}

func (s *Server) put(id string, g sharedGrant) (heard <-chan struct{}) {
	if s.parts.Shared == nil {
		return nil
	}
	data, err := json.Marshal(g)
	if err != nil {
		s.parts.Log.Error("a grant is not shared with other nodes", "grant", id, "err", err)
		return nil
	}
	return s.outbox.Put(sharedPrefix+id, data)
}

// shareUnheard shares the grants of an earlier run that the other nodes do not know. It is
// called once all shared records were read: one that was revoked meanwhile stays so.
func (s *Server) shareUnheard() {
	s.changing.Lock()
	defer s.changing.Unlock()
	for id := range s.unheard {
		if g := s.grants[id]; g != nil {
			s.share(g)
		}
	}
	clear(s.unheard)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
}

// heard is called with the records of all nodes.
func (s *Server) heard(key string, value []byte) {
	id, ok := strings.CutPrefix(key, sharedPrefix)
	if !ok {
		return
	}
	var of sharedGrant
	if value != nil && (json.Unmarshal(value, &of) != nil || ferrule.CheckID(id) != nil || !of.Revoked && of.check() != nil) {
		return
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if own := s.grants[id]; own != nil {
		delete(s.unheard, id)
		if of.Revoked { // by another node, which has recorded it
			s.drop(own)
		}
		return
	}
	known := s.foreign[id]
	switch {
	case value != nil && of.Node == s.parts.Node:
		// This node has forgotten it: its data directory was replaced, or it has ended, and
		// another node revoked it at the same time.
		s.outbox.Put(sharedPrefix+id, nil)
	case value == nil || of.Revoked:
		if known != nil {
			s.mu.Lock()
			s.unindex(known, nil)
			s.mu.Unlock()
		}
	case known != nil:
		s.replace(known, storedGrant{sharedGrant: of})
	case len(s.foreign) < maxForeign:
		s.mu.Lock()
		s.index(newGrant(id, storedGrant{sharedGrant: of}, true))
		s.mu.Unlock()
	}
}
