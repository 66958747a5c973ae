package gateway

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// A node cannot list a request under the ID of another node: who allows what it shows would
// allow something else.
func TestRequestOfAnotherNode(t *testing.T) {
	got := listedBy("attic", []ferrule.Approval{{ID: "aaaaa@attic"}, {ID: "bbbbb@cellar"}, {ID: "ccccc"}, {ID: "ddddd@"}})
	if len(got) != 1 || got[0].ID != "aaaaa@attic" {
		t.Errorf("got %+v", got)
	}
}
