// Package zigbee gives tests the real Zigbee2MQTT: the discovery messages of all devices
// that it supports, and a running process with a simulated radio.
package zigbee

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Dir returns the directory in which Zigbee2MQTT is installed, and skips the test if there
// is none.
func Dir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("FERRULE_TEST_ZIGBEE")
	if dir == "" {
		t.Skip("FERRULE_TEST_ZIGBEE is not set: see internal/testenv/zigbee")
	}
	return dir
}

// Message is a message that Zigbee2MQTT publishes.
type Message struct {
	Topic   string `json:"topic"`
	Payload string `json:"payload"`
	Retain  bool   `json:"retain"`
}

// Size is how many messages Corpus returns. They describe 4,478 devices and the bridge.
const Size = 34_174

// Corpus returns the discovery messages of every device that Zigbee2MQTT supports. It skips
// the test if they are not installed.
func Corpus(t testing.TB) []Message {
	t.Helper()
	file, err := os.Open(filepath.Join(Dir(t), "corpus.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	messages := make([]Message, 0, Size)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m Message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m)
	}
	if lines.Err() != nil || len(messages) != Size {
		t.Fatalf("the corpus has %d messages, want %d: %v", len(messages), Size, lines.Err())
	}
	return messages
}
