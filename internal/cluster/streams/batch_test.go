package streams

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/cluster/seal"
)

func newKey(t testing.TB) seal.Key {
	t.Helper()
	key, err := seal.New([]byte("0123456789abcdef0123456789abcdef"), "journal", "acme")
	if err != nil {
		t.Fatal(err)
	}
	return key
}

const chain = "0123456789abcdef"

var journalSubject = engine.Names{Tenant: "acme", Node: "north"}.Journal(chain)

// FuzzBatch checks that a batch is read only as it was sealed.
func FuzzBatch(f *testing.F) {
	key := newKey(f)
	f.Add(journalSubject, "1", "3", "0", []byte("x\n"), true)
	f.Add(journalSubject, "1", "3", "", []byte("x\n"), false)
	f.Add("ferrule.acme", "-1", "18446744073709551616", "+7", sealBatch(key, batch{journalSubject, 1, 3, []byte("x\n")}, 0).Data, false)
	f.Fuzz(func(t *testing.T, subject, first, last, after string, data []byte, sealed bool) {
		header := nats.Header{firstHeader: {first}, lastHeader: {last}, afterHeader: {after}}
		if sealed {
			var from, to, before uint64
			fmt.Sscan(first, &from)
			fmt.Sscan(last, &to)
			fmt.Sscan(after, &before)
			msg := sealBatch(key, batch{subject, from, to, data}, before)
			header, data = msg.Header, msg.Data
		}
		b, err := openBatch(key, subject, header, data)
		if err != nil {
			if sealed {
				t.Error(err)
			}
			return
		}
		if again := sealBatch(key, batch{subject, b.First, b.Last, b.Lines}, b.after); string(again.Data) != string(data) {
			t.Errorf("%q was read as %+v", data, b)
		}
		lastHash(b.Lines)
	})
}
