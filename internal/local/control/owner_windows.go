package control

import "os"

// isPrivate returns true: on Windows the temporary directory belongs to the user.
func isPrivate(os.FileInfo) bool { return true }
