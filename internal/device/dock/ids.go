package dock

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// chooseID returns the ID of a device: the configured name, else the previous one
// unless another node gave it away, else a new one.
func (r *registry) chooseID(s *transport.Sighting, model string, before *ferrule.Device) string {
	if s.Name != "" && r.ownerNames[s.Name] == s.Address {
		return s.Name
	}
	if before != nil && (before.Kind != "" || before.Named) && !r.takenRemotely(before.ID, s) {
		return before.ID
	}
	return r.newID(s, model)
}

// newID makes an ID from the title of a device, else from its model, with digits of its address if that
// is taken. If another node knows the device by one of these IDs, it is used.
func (r *registry) newID(s *transport.Sighting, model string) string {
	var free, last string
	for id := range r.candidates(s, model) {
		switch last = id; {
		case !r.isFree(id, s):
		case r.remotes == nil || r.remote(id) != nil:
			return id
		case free == "":
			free = id
		}
	}
	return cmp.Or(free, last)
}

// candidates yields the IDs that a device may get, best first. The last one has so
// many digits that it is unique.
func (r *registry) candidates(s *transport.Sighting, model string) iter.Seq[string] {
	slug := cmp.Or(ferrule.Slug(s.Title), ferrule.Slug(model), "device")
	source := s.Address
	if s.Local {
		source = r.node + source
	}
	sum := sha256.Sum256([]byte(source))
	digits := hex.EncodeToString(sum[:])
	return func(yield func(string) bool) {
		more := yield(slug)
		for n := 4; more && n <= ferrule.MaxID-2; n += 2 {
			more = yield(strings.TrimRight(slug[:min(len(slug), ferrule.MaxID-n-1)], "-") + "-" + digits[:n])
		}
	}
}

// isFree reports whether a sighting may have an ID.
func (r *registry) isFree(id string, s *transport.Sighting) bool {
	for _, at := range []string{r.ids[id], r.ownerNames[id], r.aliases[id]} {
		if at != "" && at != s.Address {
			return false
		}
	}
	return id != ferrule.GatewayID && !r.takenRemotely(id, s)
}
