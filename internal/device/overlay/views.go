package overlay

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

var (
	viewHash = regexp.MustCompile(`^[0-9a-f]{64}$`)
	// origin has no character that could end or extend a directive of a Content Security
	// Policy. A limit of its length in the pattern would take the start of the program 1 ms.
	origin = regexp.MustCompile(`^(https|wss)://(\*\.)?[a-zA-Z0-9][a-zA-Z0-9.-]*(:[0-9]{1,5})?$`)
)

// maxOrigin is the length of the longest origin: https://*., a DNS name and a port.
const maxOrigin = 270

// maxOrigins is the largest number of origins of one view.
const maxOrigins = 32

func (f *File) checkViews() error {
	for _, uri := range slices.Sorted(maps.Keys(f.Views)) {
		v := f.Views[uri]
		switch {
		case !ferrule.IsView(uri) || ferrule.Clean(uri, ferrule.MaxURI) != uri:
			return fmt.Errorf("views: must be URIs that begin with %s, got %q", ferrule.ViewScheme, ferrule.Clean(uri, ferrule.MaxWord))
		case !viewHash.MatchString(v.SHA256):
			return &Error{[]string{"views", uri, "sha256"}, fmt.Errorf("must be 64 hexadecimal digits, got %q", ferrule.Clean(v.SHA256, 2*len(v.SHA256)))}
		case len(v.Origins) > maxOrigins:
			return &Error{[]string{"views", uri, "origins"}, fmt.Errorf("has %d entries; limit is %d", len(v.Origins), maxOrigins)}
		}
		for _, o := range v.Origins {
			if len(o) > maxOrigin || !origin.MatchString(o) {
				return &Error{[]string{"views", uri, "origins"}, fmt.Errorf("must be like https://example.com, got %q", ferrule.Clean(o, ferrule.MaxWord))}
			}
		}
	}
	return nil
}

// views returns the views that the matching files allow. More specific files replace
// those of others.
func (s *Set) views(of subject) (all map[string]ferrule.AllowedView) {
	for _, f := range s.files {
		if len(f.Views) == 0 || !f.Match.matches(of) {
			continue
		}
		if all == nil {
			all = make(map[string]ferrule.AllowedView)
		}
		maps.Copy(all, f.Views)
	}
	return all
}
