package control

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// request is a call, and whether whoever makes it can be asked something.
type request struct {
	*ferrule.Call
	Asks bool `json:"asks,omitempty"`
}

// question is one that a device asks during a call.
type question struct {
	ID string `json:"id"`
	ferrule.Question
}

// answer is what was said to a question.
type answer struct {
	ID string `json:"id"`
	ferrule.Answer
	// Error tells why there is no answer.
	Error string `json:"error,omitempty"`
}

// questions are those that have no answer yet.
type questions struct {
	mu   sync.Mutex
	open map[string]chan answer // by ID; each holds one
}

// ask asks who made a call, as long as the call lasts.
func (s *questions) ask(ctx, call context.Context, q ferrule.Question, out *lines) (ferrule.Answer, error) {
	id, said := rand.Text(), make(chan answer, 1)
	s.mu.Lock()
	s.open[id] = said
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, id)
	}()
	out.write(reply{Question: &question{id, q}})
	select {
	case a := <-said:
		if a.Error != "" {
			return ferrule.Answer{}, errors.New(a.Error)
		}
		return a.Answer, nil
	case <-ctx.Done():
		return ferrule.Answer{}, context.Cause(ctx)
	case <-call.Done():
		return ferrule.Answer{}, context.Cause(call)
	}
}

// answer takes the answer to a question. One that nobody waits for is dropped.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	var a answer
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&a); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.questions.mu.Lock()
	defer s.questions.mu.Unlock()
	if said := s.questions.open[a.ID]; said != nil {
		said <- a
		delete(s.questions.open, a.ID)
	}
}

// answer asks whoever made a call, and tells the gateway what they said.
func (c *Client) answer(ctx context.Context, call *ferrule.Call, q question) {
	a := answer{ID: q.ID}
	said, err := call.Ask(ctx, q.Question)
	if a.Answer = said; err != nil {
		a.Error = err.Error()
	}
	body, err := json.Marshal(a)
	if err != nil {
		return // then the call ends at its deadline
	}
	if resp, err := c.ask(ctx, http.MethodPost, "/answer", bytes.NewReader(body)); err == nil {
		resp.Body.Close()
	}
}
