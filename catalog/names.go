package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/ferrulehq/ferrule"
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
// there is room beside its longest tool, and the first digits of the Kind, by
// which two that call themselves alike are told apart.
func foldedPrefix(model string, kind ferrule.Kind, longest int) string {
	const digits, least, most = 6, 12, 24
	room := max(least, min(most, maxName-longest-len(separator)-len(foldMark)-digits))
	slug := ferrule.Slug(model)
	if slug == "" {
		slug = "device"
	}
	slug = strings.TrimRight(slug[:min(room, len(slug))], "-")
	return slug + foldMark + string(kind[:min(digits, len(kind))])
}

// toolNames are the names of tools, of at most room characters, each of them
// another: the tool's own where that will do. A name that had to be cut, or that
// would be another's, ends in digits of its hash. What a tool is called depends
// on the tools beside it and on nothing else.
func toolNames(tools []*ferrule.Tool, room int) []string {
	names := make([]string, len(tools))
	wanted := make(map[string]int)
	taken := make(map[string]bool)
	for i, t := range tools {
		names[i] = portable(t.Name)
		wanted[names[i]]++
		if names[i] == t.Name && len(t.Name) <= room {
			taken[t.Name] = true // its own: nobody else gets it
		}
	}
	for i, t := range tools {
		switch {
		case names[i] == t.Name && len(t.Name) <= room:
			continue
		case len(names[i]) > room || wanted[names[i]] > 1:
			names[i] = hashed(names[i], t.Name, room, taken)
		}
		taken[names[i]] = true
	}
	return names
}

// hashed is a name of at most room characters that ends in digits of a hash, and
// is not taken.
func hashed(name, of string, room int, taken map[string]bool) string {
	sum := sha256.Sum256([]byte(of))
	digits := hex.EncodeToString(sum[:])
	for n := 6; ; n++ {
		short := name[:max(0, min(len(name), room-n-1))] + "_" + digits[:n]
		if !taken[short] || n == room-1 {
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
