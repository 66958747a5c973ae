package overlay

import (
	"errors"
	"fmt"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Questions allows a device to ask its callers. What is not set stays as it is; without
// any overlay, nothing is allowed.
type Questions struct {
	About       string                 `json:"about,omitempty"`
	Elicitation *ferrule.QuestionLimit `json:"elicitation,omitempty"`
	Sampling    *ferrule.QuestionLimit `json:"sampling,omitempty"`
	Roots       *ferrule.QuestionLimit `json:"roots,omitempty"`
}

// The largest limits, per hour.
const (
	maxQuestions = 1000
	maxTokens    = 10_000_000
)

func (q *Questions) check() error {
	if q == nil {
		return nil
	}
	for name, limit := range map[string]*ferrule.QuestionLimit{"elicitation": q.Elicitation, "sampling": q.Sampling, "roots": q.Roots} {
		switch {
		case limit == nil:
		case limit.Count < 0 || limit.Count > maxQuestions:
			return fmt.Errorf("%s.count: must be from 0 to %d, got %d", name, maxQuestions, limit.Count)
		case name != "sampling" && limit.Tokens != 0:
			return fmt.Errorf("%s.tokens: only sampling has a limit of tokens", name)
		case limit.Tokens < 0 || limit.Tokens > maxTokens:
			return fmt.Errorf("%s.tokens: must be from 0 to %d, got %d", name, maxTokens, limit.Tokens)
		case name == "sampling" && limit.Count > 0 && limit.Tokens == 0:
			return errors.New("sampling.tokens: must be set: the number of tokens that the device may use in an hour, for example 2000")
		}
	}
	return nil
}

// questions returns what the matching files allow together.
func (s *Set) questions(of subject) (all ferrule.QuestionLimits) {
	for _, f := range s.files {
		q := f.Questions
		if q == nil || !f.Match.matches(of) {
			continue
		}
		for limit, set := range map[*ferrule.QuestionLimit]*ferrule.QuestionLimit{&all.Elicitation: q.Elicitation, &all.Sampling: q.Sampling, &all.Roots: q.Roots} {
			if set != nil {
				*limit = *set
			}
		}
	}
	return all
}
