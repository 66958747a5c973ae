package attachment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestSave checks the names of files, and that none is overwritten.
func TestSave(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	now := time.Date(2026, 1, 31, 15, 4, 5, 0, time.Local)
	picture := ferrule.Content{Type: ferrule.ImageContent, Data: []byte("\xff\xd8picture"), MIME: "image/jpeg", URI: "file:///etc/../passwd.sh"}
	sound := ferrule.Content{Type: ferrule.AudioContent, Data: []byte("sound"), MIME: "audio/../../x.sh"}
	text := ferrule.Content{Type: ferrule.TextContent, Text: "a picture"}
	parts, err := Save([]ferrule.Content{text, picture, sound, picture}, "", now)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "ferrule-20260131-150405.jpg", "ferrule-20260131-150405.bin", "ferrule-20260131-150405-2.jpg"} {
		part := parts[i]
		if want == "" {
			if part.Path != "" || part.Text != text.Text {
				t.Errorf("text became %+v", part)
			}
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, want))
		if part.Path != filepath.Join(dir, want) || part.Data != nil || part.Bytes != len(data) || err != nil || len(data) == 0 {
			t.Errorf("part %d is %+v, want %s; %v", i, part, want, err)
		}
	}
	if parts, err := Save([]ferrule.Content{picture, sound}, "a.jpg", now); err != nil || parts[0].Path != filepath.Join(dir, "a.jpg") || parts[1].Path != filepath.Join(dir, "a-2.jpg") {
		t.Errorf("%+v, %v", parts, err)
	}
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), "link.jpg"); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"a.jpg", "link.jpg"} {
		if err := Check(name); err == nil || !strings.Contains(err.Error(), "exists") {
			t.Errorf("%s: got %v", name, err)
		}
		if parts, err := Save([]ferrule.Content{picture}, name, now); err == nil {
			t.Errorf("%s was overwritten: %+v", name, parts)
		}
	}
	if err := Check(filepath.Join("nowhere", "b.jpg")); err == nil {
		t.Error("a directory that does not exist is accepted")
	}
	if _, err := os.Lstat("elsewhere"); err == nil {
		t.Error("a link was followed")
	}
}
