package mcpu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// builtins are the tools that firmware lists always; a list without one of them
// was cut short.
var builtins = []string{"gpio_write", "gpio_read", "pwm_write", "adc_read", "get_info"}

// listTools asks for the list until it comes whole. If it never does, the best
// that came is taken, with a note of what it lacks.
func (g *greeting) listTools(ctx context.Context, about info, prof profile) (*ferrule.Manifest, error) {
	wait := listWait + lineTime(prof.list, g.link.Info().BitRate)
	var best *ferrule.Manifest
	var lacks string
	var asked []int
	failure := errNoAnswer
	for range listTries {
		id, err := g.send(ctx, "list_tools")
		if err != nil {
			return nil, err
		}
		asked = append(asked, id)
		a, err := g.await(ctx, wait, asked)
		switch {
		case errors.Is(err, errMangled), errors.Is(err, errCut):
			failure = err
			if err := g.drain(ctx); err != nil {
				return nil, err
			}
			continue
		case errors.Is(err, errNoAnswer):
			continue
		case err != nil:
			return nil, fmt.Errorf("asking for its tools: %w", err)
		case a.err != nil:
			return nil, fmt.Errorf("it refused list_tools: %s", a.err)
		}
		m, lack, err := parseList(about, a.result)
		if err != nil {
			return nil, err
		}
		if lack == "" {
			return m, nil
		}
		if best == nil || len(m.Tools)+len(m.Pins) > len(best.Tools)+len(best.Pins) {
			best, lacks = m, lack
		}
	}
	if best == nil {
		return nil, fmt.Errorf("asking for its tools %d times: %w", listTries, failure)
	}
	best.Notes = append(best.Notes, fmt.Sprintf("its list came incomplete %d times, perhaps because the board is short of memory: %s", listTries, lacks))
	return best, nil
}

// lineTime is how long n bytes take on a serial line, with a quarter to spare.
func lineTime(n, bitRate int) time.Duration {
	if bitRate <= 0 {
		return 0
	}
	return time.Duration(n) * 10 * time.Second / time.Duration(bitRate) * 5 / 4
}

// parseList makes a manifest of what list_tools answered. An entry that makes
// no sense never costs more than itself. It tells what the list lacks, if that
// can be known.
func parseList(about info, data []byte) (m *ferrule.Manifest, lacks string, err error) {
	var list struct {
		Tools []json.RawMessage `json:"tools"`
		Pins  []json.RawMessage `json:"pins"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, "", fmt.Errorf("its list of tools makes no sense: %s", reason(err))
	}
	if list.Tools == nil {
		return nil, "", errors.New("its list has no tools in it")
	}
	m = &ferrule.Manifest{Model: about.Device, Version: about.Version, Platform: about.Platform}
	var lack []string
	for i, raw := range list.Tools {
		if tool := parseTool(raw); tool.Name != "" {
			m.Tools = append(m.Tools, tool)
		} else {
			lack = append(lack, fmt.Sprintf("entry %d of the tools has no name", i+1))
		}
	}
	for i, raw := range list.Pins {
		pin, err := parsePin(raw)
		if err != nil {
			lack = append(lack, fmt.Sprintf("entry %d of the pins: %s", i+1, reason(err)))
			continue
		}
		m.Pins = append(m.Pins, pin)
	}
	if n := about.PinCount; n != nil && *n > len(m.Pins) {
		lack = append(lack, fmt.Sprintf("%d of %d pins", len(m.Pins), *n))
	}
	if about.Profile != "" {
		for _, name := range builtins {
			if m.Tool(name) == nil {
				lack = append(lack, "no "+name)
			}
		}
	}
	return m, strings.Join(lack, ", "), nil
}

// maxPoll is the longest interval that firmware can ask for.
const maxPoll = 65535 // milliseconds

func parseTool(raw []byte) ferrule.Tool {
	var entry struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
		Polling     struct {
			Enabled    bool    `json:"enabled"`
			IntervalMS float64 `json:"interval_ms"`
		} `json:"polling"`
	}
	err := json.Unmarshal(raw, &entry)
	tool := ferrule.Tool{Name: entry.Name, Text: entry.Description, Input: entry.InputSchema}
	if ms := entry.Polling.IntervalMS; entry.Polling.Enabled && ms >= 1 && ms <= maxPoll {
		tool.Poll = ferrule.Duration(time.Duration(ms) * time.Millisecond)
	}
	if err != nil {
		tool.Quarantine = "its entry in the list makes no sense: " + reason(err)
	}
	return tool
}

func parsePin(raw []byte) (ferrule.Pin, error) {
	var entry struct {
		Pin          *int            `json:"pin"`
		Name         string          `json:"name"`
		Type         string          `json:"type"`
		Description  string          `json:"description"`
		Capabilities map[string]bool `json:"capabilities"`
		Sampling     *struct {
			IntervalMS int `json:"interval_ms"`
			BufferSize int `json:"buffer_size"`
		} `json:"sampling"`
	}
	if err := json.Unmarshal(raw, &entry); err != nil {
		return ferrule.Pin{}, err
	}
	if entry.Pin == nil {
		return ferrule.Pin{}, errors.New("it has no number")
	}
	pin := ferrule.Pin{Number: *entry.Pin, Name: entry.Name, Type: entry.Type, Text: entry.Description}
	for _, ability := range []string{"buffer", "events", "summary"} {
		if entry.Capabilities[ability] {
			pin.Abilities = append(pin.Abilities, ability)
		}
	}
	if s := entry.Sampling; s != nil && s.IntervalMS > 0 && s.IntervalMS <= maxPoll && s.BufferSize >= 0 {
		pin.Sampling = &ferrule.Sampling{Interval: ferrule.Duration(time.Duration(s.IntervalMS) * time.Millisecond), Size: s.BufferSize}
	}
	return pin, nil
}

// looksCut tells whether a line without an answer in it was meant to be a list.
func looksCut(line []byte, answers []answer) bool {
	return len(answers) == 0 && bytes.Contains(line, []byte(`"tools":[`))
}
