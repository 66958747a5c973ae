package discovery

import (
	_ "embed"
	"strings"
	"sync"
)

//go:embed abbreviations.txt
var abbreviationsText string

// abbreviations are the full names of options by their short names, for each block that
// has some.
var abbreviations = sync.OnceValue(func() map[string]map[string]string {
	blocks := map[string]map[string]string{}
	var block map[string]string
	for line := range strings.Lines(abbreviationsText) {
		line = strings.TrimSpace(line)
		switch full, short, found := strings.Cut(line, " "); {
		case strings.HasPrefix(line, "["):
			block = map[string]string{}
			blocks[strings.Trim(line, "[]")] = block
		case found && block != nil:
			block[short] = full
		}
	}
	return blocks
})

// expand replaces short names of a block by full ones. If a block has both, the short one
// wins, as in Home Assistant.
func expand(block map[string]any, names map[string]string) {
	for short, value := range block {
		if full, found := names[short]; found && full != short {
			delete(block, short)
			block[full] = value
		}
	}
}

// expandAvailability does the same for the list of availability topics, which may be a
// single object, and makes it a list.
func expandAvailability(block map[string]any, names map[string]string) {
	value, found := block["availability"]
	if !found {
		return
	}
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
		block["availability"] = list
	}
	for _, each := range list {
		if each, ok := each.(map[string]any); ok {
			expand(each, names)
		}
	}
}
