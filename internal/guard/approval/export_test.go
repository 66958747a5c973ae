package approval

import "path/filepath"

// FailWrites makes every write of the file fail until restore is called.
func FailWrites(a *Approvals) (restore func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	path := a.store.path
	a.store.file.Close() // its next write fails
	a.store.path = filepath.Join(path+".missing", filepath.Base(path))
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.store.path = path
	}
}

// Decode decodes a file.
var Decode = decode
