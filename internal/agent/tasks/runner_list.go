package tasks

import (
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// IDs returns the IDs of the tasks of an account, sorted. Not all of them need to belong to the
// caller: Get says which do.
func (t *Tasks) IDs(who ferrule.Principal) (ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, k := range t.known {
		if k.account == who.Account() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
