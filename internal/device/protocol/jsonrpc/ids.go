package jsonrpc

import "slices"

// IDs hands out the ids of one session: Next, Next+1 up to Max, then 1 again. An id
// whose request was abandoned is skipped while its answer may still arrive.
type IDs struct {
	Next, Max int
	late      []int
}

// maxLate is how many abandoned ids are remembered.
const maxLate = 64

// Take returns the next free id.
func (n *IDs) Take() int {
	for {
		id := n.Next
		n.Next = id%n.Max + 1
		if !slices.Contains(n.late, id) {
			return id
		}
	}
}

// Abandon keeps id out of use until Late is called for it.
func (n *IDs) Abandon(id int) {
	if len(n.late) == maxLate {
		n.late = slices.Delete(n.late, 0, 1)
	}
	n.late = append(n.late, id)
}

// Late reports whether id belongs to an abandoned request. The id may then be used
// again.
func (n *IDs) Late(id int) bool {
	i := slices.Index(n.late, id)
	if i < 0 {
		return false
	}
	n.late = slices.Delete(n.late, i, i+1)
	return true
}
