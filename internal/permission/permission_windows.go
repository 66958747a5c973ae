package permission

// ToReadAndWrite returns nothing: every user may open ports on Windows.
func ToReadAndWrite(string) (Denied, string) { return "", "" }

// ToWrite returns nothing: Windows has no such files.
func ToWrite(string) (Denied, string) { return "", "" }
