package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxName is the maximum length of an offered name. With the prefix that clients add, it
// stays within the 64 characters that some models allow.
const maxName = 46

// separator is between a device and its tool. No ID contains it.
const separator = "__"

// foldMark is part of the prefix of folded tools. No ID contains it, so the names of
// folded tools and of device tools never collide.
const foldMark = "--"

// Name returns the name of a built-in tool.
func Name(tool string) string { return ferrule.GatewayID + separator + tool }

// foldedPrefix returns the prefix of the tools of a Kind: its model, shortened to leave
// room for its longest tool, and digits that distinguish Kinds of the same model.
func foldedPrefix(model, digits string, longest int) string {
	const minRoom, maxRoom = 12, 24
	room := max(minRoom, min(maxRoom, maxName-longest-len(separator)-len(foldMark)-len(digits)))
	slug := ferrule.Slug(model)
	if slug == "" {
		slug = "device"
	}
	slug = strings.TrimRight(slug[:min(room, len(slug))], "-")
	return slug + foldMark + digits
}

// portableNames returns unique names of at most room characters for tools or prompts. A
// name stays the same if possible. One that must be shortened, or that collides, ends in
// digits of its hash. The result depends only on the names of the same device.
func portableNames(own []string, room int) []string {
	names := make([]string, len(own))
	wanted := make(map[string]int)
	taken := make(map[string]bool)
	for i, name := range own {
		names[i] = portable(name)
		wanted[names[i]]++
	}
	keeps := func(i int) bool {
		return len(names[i]) <= room && (names[i] == own[i] || wanted[names[i]] == 1)
	}
	for i := range own {
		if keeps(i) {
			taken[names[i]] = true // before any hashed name
		}
	}
	for i := range own {
		if !keeps(i) {
			names[i] = hashed(names[i], own[i], room, taken)
			taken[names[i]] = true
		}
	}
	return names
}

// hashed returns a name of at most room characters that ends in digits of a hash and is
// not taken. It tries several hashes because a device can predict the first ones.
func hashed(name, of string, room int, taken map[string]bool) string {
	const digits = 6
	name = name[:max(0, min(len(name), room-digits-1))]
	for n := 0; ; n++ {
		text := of
		if n > 0 {
			text = fmt.Sprintf("%s\n%d", of, n)
		}
		sum := sha256.Sum256([]byte(text))
		if short := name + "_" + hex.EncodeToString(sum[:])[:digits]; !taken[short] {
			return short
		}
	}
}

// portable replaces every character that some client does not allow.
func portable(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			b.WriteRune(r)
		} else {
			b.WriteByte('_')
		}
	}
	return b.String()
}
