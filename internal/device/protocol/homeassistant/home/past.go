package home

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxPast limits the stored states and statistics of an entity in one answer.
const maxPast = 200_000

// Statistic is what Home Assistant keeps of an hour of a measurement.
type Statistic struct {
	Start          time.Time
	Mean, Min, Max float64
}

var errPast = errors.New("the history that Home Assistant sent cannot be decoded")

// ReadPast decodes the answer to history/history_during_period for one entity, in the order of
// time.
func ReadPast(data json.RawMessage, id string) ([]State, error) {
	var all map[string][]compact
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, errPast
	}
	entries := all[id]
	states := make([]State, 0, min(len(entries), maxPast))
	for _, entry := range entries[:min(len(entries), maxPast)] {
		var s State
		s.merge(id, entry)
		if !s.Updated.IsZero() { // lu always, lc if it is another time
			states = append(states, s)
		}
	}
	slices.SortStableFunc(states, func(a, b State) int { return a.Updated.Compare(b.Updated) })
	return states, nil
}

// ReadStatistics decodes the answer to recorder/statistics_during_period for one entity, in the
// order of time. Hours without a mean are left out.
func ReadStatistics(data json.RawMessage, id string) ([]Statistic, error) {
	var all map[string][]struct {
		Start          float64 `json:"start"` // in milliseconds
		Mean, Min, Max *float64
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, errPast
	}
	entries := all[id]
	var out []Statistic
	for _, e := range entries[:min(len(entries), maxPast)] {
		start := seconds(e.Start / 1000)
		if start.IsZero() || e.Mean == nil || math.IsNaN(*e.Mean) || math.IsInf(*e.Mean, 0) {
			continue
		}
		out = append(out, Statistic{Start: start, Mean: *e.Mean, Min: *cmp.Or(e.Min, e.Mean), Max: *cmp.Or(e.Max, e.Mean)})
	}
	slices.SortStableFunc(out, func(a, b Statistic) int { return a.Start.Compare(b.Start) })
	return out, nil
}

// Point returns the statistic as a point of a series.
func (s Statistic) Point() ferrule.Point {
	return ferrule.Point{Time: s.Start, Min: s.Min, Max: s.Max, Mean: s.Mean, Count: 1}
}
