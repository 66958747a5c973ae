package serial

// denied tells nothing: everybody may open ports here.
func denied(string) (Denied, string) { return "", "" }

// holding tells nothing: the system keeps others out of a port that is taken, and
// does not tell who has it.
func holding(string) Process { return Process{} }
