package ferrule

// QuestionLimits is what a device may ask its callers. Its zero value allows nothing:
// a device that nobody vouches for must not use a caller's model, or pretend to its user
// to be somebody else.
type QuestionLimits struct {
	// Elicitation is for forms and pages that are shown to the user.
	Elicitation QuestionLimit
	// Sampling is for requests to the caller's model.
	Sampling QuestionLimit
	// Roots is for the list of folders that the caller works in.
	Roots QuestionLimit
}

// QuestionLimit is how much a device may ask in an hour.
type QuestionLimit struct {
	// Count is the number of questions.
	Count int `json:"count"`
	// Tokens is what the answers of a model may have together, with the questions.
	Tokens int `json:"tokens,omitempty"`
}

// For returns the name and the limit of questions to a target.
func (l QuestionLimits) For(target AskTarget) (name string, limit QuestionLimit) {
	switch target {
	case User, Page:
		return "elicitation", l.Elicitation
	case Model:
		return "sampling", l.Sampling
	case Roots:
		return "roots", l.Roots
	}
	return string(target), QuestionLimit{}
}
