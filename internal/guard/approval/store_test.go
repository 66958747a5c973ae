package approval_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/ferrulehq/ferrule/internal/guard/approval"
)

// FuzzDecode checks that no file can be read as something that nobody wrote: each record is
// complete and stands in a line of its own, and what is read is the same after it was
// written again.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		f.Fatal("no examples", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)-1])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := approval.Decode(data)
		if err != nil {
			if all != nil {
				t.Fatal("an error and records")
			}
			return
		}
		var again bytes.Buffer
		for _, r := range all {
			if r.ID == "" || r.Device == "" || r.Tool == "" || r.Principal.Role == "" || !json.Valid(r.Args) || r.Standing && r.By == "" {
				t.Fatalf("incomplete: %+v", r)
			}
			if !bytes.Contains(data, []byte(r.ID)) {
				t.Fatalf("nobody wrote %s", r.ID)
			}
			text, err := json.Marshal(struct {
				Record approval.Record `json:"record"`
			}{r})
			if err != nil {
				t.Fatal(err)
			}
			again.Write(append(text, '\n'))
		}
		same, err := approval.Decode(again.Bytes())
		if err != nil || len(same) != len(all) {
			t.Fatalf("%d records are %d after they were written again: %v", len(all), len(same), err)
		}
		// What was not completely written does not count, and takes nothing with it.
		torn, err := approval.Decode(append(again.Bytes(), `{"end":"`...))
		if err != nil || len(torn) != len(all) {
			t.Fatalf("%d records are %d with a torn line: %v", len(all), len(torn), err)
		}
	})
}
