package hardware

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/thing"
)

// newStrip returns a device with a strip on a port that is not an SPI port, and what is sent.
func newStrip(t *testing.T, count int, config StripConfig) (*thing.Device, *Strip, *[]byte) {
	t.Helper()
	board := thing.New("board", "1")
	strip, err := LEDs(board, "null", count, config)
	if err != nil {
		t.Fatal(err)
	}
	sent := new([]byte)
	strip.send = func(data []byte) error {
		*sent = data
		return nil
	}
	return board, strip, sent
}

// decodeFrame returns the bytes that LEDs take from a frame: a long pulse is a 1.
func decodeFrame(t *testing.T, frame []byte) (values []byte) {
	t.Helper()
	head, tail := frame[:pause], frame[len(frame)-pause:]
	if !bytes.Equal(head, make([]byte, pause)) || !bytes.Equal(tail, make([]byte, pause)) {
		t.Fatal("a frame without pauses")
	}
	bits := 0
	value := byte(0)
	for i := pause * 8; i < (len(frame)-pause)*8; i += 3 {
		bit := func(i int) byte { return frame[i/8] >> (7 - i%8) & 1 }
		if bit(i) != 1 || bit(i+2) != 0 {
			t.Fatalf("bit %d is neither 100 nor 110", i)
		}
		value = value<<1 | bit(i+1)
		if bits++; bits%8 == 0 {
			values = append(values, value)
		}
	}
	return values
}

func TestLEDs(t *testing.T) {
	board, _, sent := newStrip(t, 3, StripConfig{Name: "shelf"})
	wantEffects(t, board, map[string]string{
		"shelf_set": "idempotent", "shelf_fill": "idempotent", "shelf_clear": "idempotent", "shelf_brightness": "idempotent",
	})
	if *sent != nil {
		t.Error("opening the strip sent something")
	}
	state := func(brightness, shown string) string {
		return `{"count":3,"brightness":` + brightness + `,"shown":` + shown + `}`
	}
	step := func(tool, args, result string, colors ...byte) {
		t.Helper()
		want(t, board, tool, args, result)
		if got := decodeFrame(t, *sent); !bytes.Equal(got, colors) {
			t.Errorf("%s %s: sent % x, want % x", tool, args, got, colors)
		}
	}
	step("shelf_set", `{"index":1,"red":255,"green":16,"blue":1}`, state("255", "true"), 0, 0, 0, 16, 255, 1, 0, 0, 0)
	step("shelf_set", `{"index":0,"red":9,"green":9,"blue":9,"show":false}`, state("255", "false"), 0, 0, 0, 16, 255, 1, 0, 0, 0)
	step("shelf_brightness", `{"brightness":128}`, state("128", "true"), 4, 4, 4, 8, 128, 0, 0, 0, 0)
	step("shelf_brightness", `{"brightness":255}`, state("255", "true"), 9, 9, 9, 16, 255, 1, 0, 0, 0)
	step("shelf_fill", `{"red":1,"green":2,"blue":3}`, state("255", "true"), 2, 1, 3, 2, 1, 3, 2, 1, 3)
	step("shelf_clear", `{}`, state("255", "true"), 0, 0, 0, 0, 0, 0, 0, 0, 0)
	*sent = nil
	wantRefused(t, board, "shelf_set", `{"index":3,"red":0,"green":0,"blue":0}`, "2")
	wantRefused(t, board, "shelf_fill", `{"red":256,"green":0,"blue":0}`, "255")
	wantRefused(t, board, "shelf_fill", `{"red":1,"green":0,"blue":0,"white":1}`, "white")
	wantRefused(t, board, "shelf_brightness", `{"brightness":-1}`, "0")
	if *sent != nil {
		t.Error("a refused call sent something")
	}
}

// TestLEDsFail checks that a failed transfer is not a refusal, and that a port which cannot be
// set up is one.
func TestLEDsFail(t *testing.T) {
	board, strip, _ := newStrip(t, 1, StripConfig{Order: "grbw"})
	strip.send = func([]byte) error { return errors.New("cut off") }
	wantFailed(t, board, "leds_fill", `{"red":1,"green":1,"blue":1,"white":7}`, "cut off")
	strip.send = func(data []byte) error { return sendSPI("/dev/null", data) }
	wantRefused(t, board, "leds_clear", `{}`, "2400000 Hz")
	if want := (Color{Red: 1, Green: 1, Blue: 1, White: 7}); strip.colors[0] != want {
		t.Errorf("a refused call left %+v, want %+v", strip.colors[0], want)
	}
}

func TestStripConfig(t *testing.T) {
	for name, c := range map[string]struct {
		count  int
		config StripConfig
		reason string
	}{
		"order":      {1, StripConfig{Order: "RGG"}, "order"},
		"brightness": {1, StripConfig{Brightness: 256}, "brightness"},
		"none":       {0, StripConfig{}, "number"},
		"too many":   {442, StripConfig{}, "spidev.bufsiz=4158"},
	} {
		if _, err := OpenStrip("null", c.count, c.config); err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.reason)
		}
	}
	if _, err := OpenStrip("null", 435, StripConfig{}); err != nil {
		t.Error(err)
	}
	tree(t, map[string]string{"dev/spidev0.0": ""})
	if _, err := OpenStrip("null", 1, StripConfig{}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no port: %v", err)
	}
	if _, err := OpenStrip("spidev0.0", 1, StripConfig{}); err == nil || !strings.Contains(err.Error(), "not an SPI port") {
		t.Errorf("a file: %v", err)
	}
}
