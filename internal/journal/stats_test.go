package journal

import (
	"errors"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestStats checks the counters of records, writes and failures, and OnSync.
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
		t.Errorf("before the first write: %+v", s)
	}
	if err := j.Append(ferrule.Entry{Call: "durable"}, true); err != nil {
		t.Fatal(err)
	}
	if s := j.Stats(); s.Records != 4 || s.Writes != 1 || s.Failures != 0 || s.Bytes != w.synced || s.Bytes == 0 {
		t.Errorf("got %+v, %d bytes synced", s, w.synced)
	}
	w.fail = errors.New("the disk is gone")
	if err := j.Append(ferrule.Entry{Call: "lost"}, true); err == nil {
		t.Error("the write succeeded")
	}
	// It was written. Whether it is on disk is not known.
	if s := j.Stats(); s.Records != 5 || s.Writes != 2 || s.Failures != 1 || s.Bytes != w.synced {
		t.Errorf("got %+v, %d bytes synced", s, w.synced)
	}
	if len(took) != 1 || took[0] <= 0 {
		t.Errorf("syncs took %v", took)
	}
}
