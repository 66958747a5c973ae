package skills

import (
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// code returns a name of a device as a code span in one line.
func code(name string, limit int) string {
	name = ferrule.OneLine(ferrule.Clean(name, limit), limit)
	fence := strings.Repeat("`", longestRun(name)+1)
	if strings.HasPrefix(name, "`") || strings.HasSuffix(name, "`") || name == "" {
		name = " " + name + " "
	}
	return fence + name + fence
}

// block returns a text as a code block. It cannot end the block.
func block(language, text string) string {
	fence := strings.Repeat("`", max(3, longestRun(text)+1))
	return fence + language + "\n" + text + "\n" + fence + "\n"
}

// quote returns a text of a device with a mark before each line, so that it cannot be
// taken for a text of ours.
func quote(text string, limit int) string {
	text = strings.TrimSpace(ferrule.Clean(text, limit))
	if text == "" {
		return ""
	}
	return "> " + strings.ReplaceAll(text, "\n", "\n> ") + "\n"
}

// longestRun returns the number of backticks in the longest run of them.
func longestRun(s string) (longest int) {
	run := 0
	for _, c := range []byte(s) {
		if run++; c != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

// slug returns what is left of a name of a device in the name of a skill.
func slug(name string) string {
	const limit = 40
	var b strings.Builder
	for _, c := range []byte(strings.ToLower(name)) {
		switch {
		case b.Len() == limit:
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteByte(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	if s := strings.Trim(b.String(), "-"); s != "" {
		return s
	}
	return "device"
}
