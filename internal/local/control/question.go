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

// request is a call. Asks is set if the caller can answer questions.
type request struct {
	*ferrule.Call
	Asks bool `json:"asks,omitempty"`
}

// question is a question of a device during a call.
type question struct {
	ID string `json:"id"`
	ferrule.Question
}

// answer is the answer to a question.
type answer struct {
	ID string `json:"id"`
	ferrule.Answer
	// Error is set instead of an answer if asking failed.
	Error string `json:"error,omitempty"`
}

// questions are the questions without an answer.
type questions struct {
	mu   sync.Mutex
	open map[string]chan answer // by ID; buffered for one answer
}

// ask sends a question to the caller and waits for the answer or the end of the call.
func (s *questions) ask(ctx, call context.Context, q ferrule.Question, out *lines) (ferrule.Answer, error) {
	if q.Late { // the response that questions are written to has ended
		return ferrule.Answer{}, errors.New("the call has ended, and its caller cannot be asked any more")
	}
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

// answer receives the answer to a question, and drops it if the call has ended.
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

// answer asks the caller and sends the answer to the gateway.
func (c *Client) answer(ctx context.Context, call *ferrule.Call, q question) {
	a := answer{ID: q.ID}
	said, err := call.Ask(ctx, q.Question)
	if a.Answer = said; err != nil {
		a.Error = err.Error()
	}
	body, err := json.Marshal(a)
	if err != nil {
		return // the call ends at its deadline
	}
	if resp, err := c.send(ctx, http.MethodPost, "/answer", bytes.NewReader(body)); err == nil {
		resp.Body.Close()
	}
}
