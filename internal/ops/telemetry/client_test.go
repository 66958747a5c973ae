package telemetry

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func TestEndpoint(t *testing.T) {
	for given, want := range map[string]string{
		"http://127.0.0.1:4318":            "http://127.0.0.1:4318/v1/traces",
		"http://127.0.0.1:4318/":           "http://127.0.0.1:4318/v1/traces",
		"https://example.com/otlp?key=one": "https://example.com/otlp?key=one",
	} {
		if got := newClient(given).endpoint; got != want {
			t.Errorf("%s: got %s", given, got)
		}
	}
}

// FuzzRejected decodes arbitrary answers of a collector.
func FuzzRejected(f *testing.F) {
	partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 3)
	whole := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)
	f.Add(whole)
	f.Add(append([]byte{0x12, 0x01, 'x'}, whole...))
	f.Add([]byte{0x0a, 0xff})
	f.Fuzz(func(t *testing.T, answer []byte) {
		if n := rejected(answer); n > 0 && len(answer) < 4 {
			t.Errorf("%x rejects %d spans", answer, n)
		}
	})
}
