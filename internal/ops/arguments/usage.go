package arguments

// UsageError is a mistake in what a person typed. Nothing was done.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
