package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxName is the longest name of an offer: with the prefix that clients put in
// front of it, it stays within the 64 characters that some models take.
const maxName = 46

// separator stands between a device and its tool. No ID has it.
const separator = "__"

// foldMark stands in the prefix of folded tools. No ID has it either, so that
// the name of a folded tool is never that of a device's.
const foldMark = "--"

// Name is the name of one of the gateway's own tools.
func Name(tool string) string { return ferrule.GatewayID + separator + tool }

// foldedPrefix is what stands before the tools of a Kind: its model, as far as
// there is room beside its longest tool, and digits, by which two that call
// themselves alike are told apart.
func foldedPrefix(model, digits string, longest int) string {
	const least, most = 12, 24
	room := max(least, min(most, maxName-longest-len(separator)-len(foldMark)-len(digits)))
	slug := ferrule.Slug(model)
	if slug == "" {
		slug = "device"
	}
	slug = strings.TrimRight(slug[:min(room, len(slug))], "-")
	return slug + foldMark + digits
}

// portableNames are the names of tools, or of prompts, of at most room characters,
// each of them another: its own where that will do. A name that had to be cut, or
// that would be another's, ends in digits of its hash. What a tool is called depends
// on the tools beside it and on nothing else.
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
			taken[names[i]] = true // before any hash: nobody else gets it
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

// hashed is a name of at most room characters that ends in digits of a hash, and
// is not taken. Whoever wrote the tools may have foreseen some of the digits.
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

// portable replaces every character that some client would.
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
