package audit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Forged is messages among the copies of a journal that no node wrote. They are not records:
// nothing shows them, and a verification only names them.
type Forged struct {
	// Node and Chain are what the messages claim.
	Node  string `json:"node"`
	Chain string `json:"chain"`
	// What is why they do not count.
	What ferrule.Forgery `json:"what"`
	// Messages is how many there are. First and Last are the numbers of the first and the last
	// of them in the stream of journals.
	Messages int    `json:"messages"`
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
}

// maxForged limits the journals whose forged messages are named. Others are counted.
const maxForged = 100

// addForged counts a message that no node wrote.
func (v *Verification) addForged(l ferrule.JournalLines) {
	i := slices.IndexFunc(v.Forged, func(f Forged) bool { return f.Node == l.Node && f.Chain == l.Chain && f.What == l.Forgery })
	switch {
	case i >= 0:
		v.Forged[i].Messages++
		v.Forged[i].Last = l.Message
	case len(v.Forged) < maxForged:
		v.Forged = append(v.Forged, Forged{l.Node, l.Chain, l.Forgery, 1, l.Message, l.Message})
		v.Wrong++
	default:
		v.MoreForged++
	}
}

// sortForged orders the forged messages like the chains.
func (v *Verification) sortForged() {
	if v.MoreForged > 0 {
		v.Wrong++
	}
	slices.SortFunc(v.Forged, func(a, b Forged) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Chain, b.Chain), cmp.Compare(a.What, b.What))
	})
}

// forgedMessages returns how many messages no node wrote.
func (v *Verification) forgedMessages() int {
	n := v.MoreForged
	for _, f := range v.Forged {
		n += f.Messages
	}
	return n
}

// Forgeries describes the forged messages, one line for each journal.
func (v *Verification) Forgeries() (lines []string) {
	for _, f := range v.Forged {
		lines = append(lines, fmt.Sprintf("copy of %s of node %s: %s", f.Chain, f.Node, f.describe()))
	}
	if v.MoreForged > 0 {
		lines = append(lines, fmt.Sprintf("and %d more forged messages", v.MoreForged))
	}
	return lines
}

func (f Forged) describe() string {
	which, are := fmt.Sprintf("message %d of the stream", f.First), "is"
	if f.Messages > 1 {
		which, are = fmt.Sprintf("%d messages, from %d to %d of the stream,", f.Messages, f.First, f.Last), "are"
	}
	if f.What == ferrule.Replayed {
		return fmt.Sprintf("%s %s forged: a replay of what a node wrote", which, are)
	}
	return fmt.Sprintf("%s %s not sealed with the secret of the tenant", which, are)
}
