package serial

// denied returns nothing: every user may open ports on Windows.
func denied(string) (Denied, string) { return "", "" }

// holderOf returns nothing: Windows locks an open port and does not say who has it.
func holderOf(string) Process { return Process{} }
