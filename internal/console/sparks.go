package console

import (
	"context"
	"html/template"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/console/draw"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// sparkCache has curves of the last hour. All open pages share them.
type sparkCache struct {
	mu   sync.Mutex
	made map[sparkKey]sparkEntry
}

type sparkKey struct{ device, signal string }

type sparkEntry struct {
	html template.HTML
	at   time.Time
}

// Limits of the curves.
const (
	sparkTime = time.Hour
	// sparkLeast is how much of the hour must be known.
	sparkLeast = 5 * time.Minute
	// sparkAge is how long a curve is used again. One column of it is 75 seconds.
	sparkAge  = 30 * time.Second
	maxSparks = 4096
	// sparksPerRow is how many values of a device have a curve.
	sparksPerRow = 2
)

// of returns the curves of the values of a device.
func (s *sparkCache) of(ctx context.Context, operations *api.API, row api.DeviceRow) map[string]template.HTML {
	if row.Fold != nil || row.Trust == string(ferrule.TrustPending) {
		return nil
	}
	all := make(map[string]template.HTML)
	for _, v := range row.Values[:min(len(row.Values), sparksPerRow)] {
		if v.State || api.IsMinor(v.Signal) {
			continue
		}
		if html := s.one(ctx, operations, sparkKey{row.ID, v.Signal}); html != "" {
			all[v.Signal] = html
		}
	}
	return all
}

// one returns the curve of a signal, or "" if too little of it is known. The caller has
// checked that the person is shown the device.
func (s *sparkCache) one(ctx context.Context, operations *api.API, key sparkKey) template.HTML {
	now := time.Now()
	s.mu.Lock()
	known, ok := s.made[key]
	s.mu.Unlock()
	if ok && now.Sub(known.at) < sparkAge {
		return known.html
	}
	series, err := operations.Recent(ctx, key.device, key.signal, now.Add(-sparkTime), now)
	var html template.HTML
	if n := len(series.Points); err == nil && n > 1 && series.Points[n-1].Time.Sub(series.Points[0].Time) > sparkLeast {
		html = draw.Spark(series, now.Add(-sparkTime), now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made == nil || len(s.made) >= maxSparks {
		s.made = make(map[sparkKey]sparkEntry)
	}
	s.made[key] = sparkEntry{html, now}
	return html
}
