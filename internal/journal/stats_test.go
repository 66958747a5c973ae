package journal

import (
	"errors"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestStats: what is written is counted, by records and by writes, each of which is
// timed; and so is what fails.
func TestStats(t *testing.T) {
	j, w, _ := watch(t)
	var took []time.Duration
	j.OnSync(func(d time.Duration) { took = append(took, d) })
	for range 3 {
		if err := j.Append(ferrule.Entry{Call: "lazy"}, false); err != nil {
			t.Fatal(err)
		}
	}
	if s := j.Stats(); s != (Stats{}) {
		t.Errorf("nothing is written yet: %+v", s)
	}
	if err := j.Append(ferrule.Entry{Call: "durable"}, true); err != nil {
		t.Fatal(err)
	}
	if s := j.Stats(); s.Records != 4 || s.Writes != 1 || s.Failures != 0 || s.Bytes != w.synced || s.Bytes == 0 {
		t.Errorf("got %+v, and %d bytes are synced", s, w.synced)
	}
	w.fail = errors.New("the disk is gone")
	if err := j.Append(ferrule.Entry{Call: "lost"}, true); err == nil {
		t.Error("it was written")
	}
	if s := j.Stats(); s.Records != 4 || s.Writes != 1 || s.Failures != 1 {
		t.Errorf("got %+v", s)
	}
	if len(took) != 1 || took[0] <= 0 {
		t.Errorf("syncs took %v", took)
	}
}
