package mcpu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// builtins are the tools that firmware always lists. A list without one of them is
// incomplete.
var builtins = []string{"gpio_write", "gpio_read", "pwm_write", "adc_read", "get_info"}

// listTools requests the list until it is complete. If it never is, the longest one is
// used, with a note of what is missing.
func (g *greeting) listTools(ctx context.Context, about info, prof profile) (*ferrule.Manifest, error) {
	wait := listWait + lineTime(prof.list, g.link.Info().BitRate)
	var best *ferrule.Manifest
	var missing string
	var sent []int
	failure := jsonrpc.ErrNoAnswer
	for range listTries {
		id, err := g.send(ctx, "list_tools")
		if err != nil {
			return nil, err
		}
		sent = append(sent, id)
		a, err := g.await(ctx, wait, sent)
		switch {
		case errors.Is(err, errMangled), errors.Is(err, errCut):
			failure = err
			if err := g.drain(ctx); err != nil {
				return nil, err
			}
			continue
		case errors.Is(err, jsonrpc.ErrNoAnswer):
			continue
		case err != nil:
			return nil, fmt.Errorf("list_tools failed: %w", err)
		case a.err != nil:
			return nil, fmt.Errorf("it refused list_tools: %s", a.err)
		}
		m, lacks, err := parseList(about, a.result)
		if err != nil {
			return nil, err
		}
		if lacks == "" {
			return m, nil
		}
		if best == nil || len(m.Tools)+len(m.Pins) > len(best.Tools)+len(best.Pins) {
			best, missing = m, lacks
		}
	}
	if best == nil {
		return nil, fmt.Errorf("list_tools failed %d times: %w", listTries, failure)
	}
	best.Notes = append(best.Notes, fmt.Sprintf("the tool list was incomplete in %d tries, the board may be out of memory: %s", listTries, missing))
	return best, nil
}

// lineTime returns how long n bytes take on a serial line, plus 25 percent.
func lineTime(n, bitRate int) time.Duration {
	if bitRate <= 0 {
		return 0
	}
	return time.Duration(n) * 10 * time.Second / time.Duration(bitRate) * 5 / 4
}

// parseList returns the manifest in the result of list_tools, and what is missing in
// it. An invalid entry does not affect the others.
func parseList(about info, data []byte) (m *ferrule.Manifest, missing string, err error) {
	var list struct {
		Tools []json.RawMessage `json:"tools"`
		Pins  []json.RawMessage `json:"pins"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, "", fmt.Errorf("invalid answer to list_tools: %s", jsonrpc.Reason(err))
	}
	if list.Tools == nil {
		return nil, "", errors.New("invalid answer to list_tools: tools is missing")
	}
	m = &ferrule.Manifest{Model: about.Device, Version: about.Version, Platform: about.Platform}
	var lack []string
	for i, raw := range list.Tools {
		if tool := parseTool(raw); tool.Name != "" {
			m.Tools = append(m.Tools, tool)
		} else {
			lack = append(lack, fmt.Sprintf("tool %d has no name", i+1))
		}
	}
	for i, raw := range list.Pins {
		pin, err := parsePin(raw)
		if err != nil {
			lack = append(lack, fmt.Sprintf("pin entry %d is invalid: %s", i+1, jsonrpc.Reason(err)))
			continue
		}
		m.Pins = append(m.Pins, pin)
	}
	if n := about.PinCount; n != nil && *n > len(m.Pins) {
		lack = append(lack, fmt.Sprintf("only %d of %d pins", len(m.Pins), *n))
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

// maxPoll is the longest interval that firmware can declare.
const maxPoll = 65535 // milliseconds

func parseTool(raw []byte) ferrule.Tool {
	var entry struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
		Polling     struct {
			Enabled    *bool   `json:"enabled"` // true unless it says otherwise
			IntervalMS float64 `json:"interval_ms"`
		} `json:"polling"`
	}
	err := json.Unmarshal(raw, &entry)
	tool := ferrule.Tool{Name: entry.Name, Text: entry.Description, Input: entry.InputSchema}
	enabled := entry.Polling.Enabled == nil || *entry.Polling.Enabled
	if ms := entry.Polling.IntervalMS; enabled && ms >= 1 && ms <= maxPoll {
		tool.Poll = ferrule.Duration(time.Duration(ms) * time.Millisecond)
	}
	if err != nil {
		tool.Quarantine = "invalid entry in list_tools: " + jsonrpc.Reason(err)
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
		return ferrule.Pin{}, errors.New("pin is missing")
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

// looksCut reports whether a line without an answer is part of a list.
func looksCut(line []byte, answers []answer) bool {
	return len(answers) == 0 && bytes.Contains(line, []byte(`"tools":[`))
}
