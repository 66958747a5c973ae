package static

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// TestVendor checks that vendored files are those that the table names.
func TestVendor(t *testing.T) {
	table, err := os.ReadFile("vendor/README.md")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := files.ReadDir("vendor")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".LICENSE") || e.Name() == "README.md" {
			continue
		}
		data, err := files.ReadFile("vendor/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		if !strings.Contains(string(table), hex.EncodeToString(sum[:])) {
			t.Errorf("%s is not the file that vendor/README.md names", e.Name())
		}
	}
}
