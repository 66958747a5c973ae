package home

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of services.
const (
	maxServices = 5_000
	maxFields   = 64 // of one service
	maxText     = 1024
	maxSelector = 32 << 10
)

var serviceName = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

type serviceEntry struct {
	Name        string                     `json:"name"`
	Description string                     `json:"description"`
	Fields      map[string]json.RawMessage `json:"fields"`
	Target      *struct {
		Entity json.RawMessage `json:"entity"`
	} `json:"target"`
	Response *struct {
		Optional bool `json:"optional"`
	} `json:"response"`
}

type fieldEntry struct {
	Name        string                     `json:"name"`
	Description string                     `json:"description"`
	Required    bool                       `json:"required"`
	Default     json.RawMessage            `json:"default"`
	Example     json.RawMessage            `json:"example"`
	Selector    json.RawMessage            `json:"selector"`
	Fields      map[string]json.RawMessage `json:"fields"` // it is a section
	Filter      struct {
		Features  []json.RawMessage            `json:"supported_features"`
		Attribute map[string][]json.RawMessage `json:"attribute"`
	} `json:"filter"`
}

// ReadServices decodes the answer to get_services. Texts is the answer to
// frontend/get_translations, for what has no text of its own; it may be nil. Services are sorted
// by domain and name. One that cannot be decoded is left out.
func ReadServices(data, texts json.RawMessage) ([]Service, error) {
	var domains map[string]map[string]json.RawMessage
	if err := json.Unmarshal(data, &domains); err != nil {
		return nil, fmt.Errorf("services: %w", err)
	}
	var translated struct {
		Resources map[string]string `json:"resources"`
	}
	if len(texts) > 0 {
		if err := json.Unmarshal(texts, &translated); err != nil {
			return nil, fmt.Errorf("texts of services: %w", err)
		}
	}
	var all []Service
	for _, domain := range slices.Sorted(maps.Keys(domains)) {
		for _, name := range slices.Sorted(maps.Keys(domains[domain])) {
			if !serviceName.MatchString(domain) || !serviceName.MatchString(name) || len(all) >= maxServices {
				continue
			}
			if s, ok := readService(domain, name, domains[domain][name]); ok {
				s.translate(translated.Resources)
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// LacksTexts reports whether services have no texts of their own: Home Assistant has them
// elsewhere since 2025.11.
func LacksTexts(all []Service) bool {
	return slices.ContainsFunc(all, func(s Service) bool { return s.Title == "" && s.Text == "" && len(s.Targets) > 0 })
}

func readService(domain, name string, data json.RawMessage) (Service, bool) {
	var entry serviceEntry
	if json.Unmarshal(data, &entry) != nil {
		return Service{}, false
	}
	s := Service{Domain: domain, Name: name, Title: ferrule.Clean(entry.Name, maxName), Text: ferrule.Clean(entry.Description, maxText)}
	if entry.Response != nil {
		s.Response = "always"
		if entry.Response.Optional {
			s.Response = "optional"
		}
	}
	if entry.Target != nil {
		s.Targets = readTargets(entry.Target.Entity)
	}
	s.addFields(entry.Fields, true)
	return s, true
}

// readTargets returns the entities that a service acts on. Home Assistant writes one or a list;
// nothing means every entity.
func readTargets(data json.RawMessage) []Target {
	var targets []Target
	for _, one := range oneOrMore(data) {
		var entry struct {
			Domain      json.RawMessage   `json:"domain"`
			Integration json.RawMessage   `json:"integration"`
			Class       json.RawMessage   `json:"device_class"`
			Features    []json.RawMessage `json:"supported_features"`
		}
		if json.Unmarshal(one, &entry) != nil {
			continue
		}
		masks, ok := readMasks(entry.Features)
		if !ok {
			continue
		}
		targets = append(targets, Target{
			Domains: asTexts(entry.Domain), Platforms: asTexts(entry.Integration), Classes: asTexts(entry.Class), Features: masks,
		})
	}
	if len(targets) == 0 {
		return []Target{{}}
	}
	return targets
}

// oneOrMore returns the elements of a JSON array, or the value itself if it is another one.
func oneOrMore(data json.RawMessage) []json.RawMessage {
	var all []json.RawMessage
	if len(data) == 0 || string(data) == "null" {
		return nil
	}
	if json.Unmarshal(data, &all) != nil {
		return []json.RawMessage{data}
	}
	return all[:min(len(all), maxFields)]
}

func asTexts(data json.RawMessage) (all []string) {
	for _, one := range oneOrMore(data) {
		if text := asText(one); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// readMasks returns masks of features. A list within the list is a mask of all its bits. It
// reports false if one is not a number: nobody knows then what fits.
func readMasks(all []json.RawMessage) (masks []int, ok bool) {
	for _, one := range all[:min(len(all), maxFields)] {
		mask := 0
		for _, part := range oneOrMore(one) {
			var n int
			if json.Unmarshal(part, &n) != nil || n < 0 || n > math.MaxInt32 {
				return nil, false
			}
			mask |= n
		}
		masks = append(masks, mask)
	}
	return masks, true
}

// addFields adds fields in the order of their names. Those of a section come as if it were not
// there.
func (s *Service) addFields(fields map[string]json.RawMessage, sections bool) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var entry fieldEntry
		if len(s.Fields) >= maxFields || json.Unmarshal(fields[name], &entry) != nil {
			continue
		}
		if entry.Fields != nil {
			if sections {
				s.addFields(entry.Fields, false)
			}
			continue
		}
		masks, ok := readMasks(entry.Filter.Features)
		if !ok || !serviceName.MatchString(name) || len(entry.Selector)+len(entry.Default)+len(entry.Example) > maxSelector {
			continue
		}
		s.Fields = append(s.Fields, Field{
			Name: name, Title: ferrule.Clean(entry.Name, maxName), Text: ferrule.Clean(entry.Description, maxText), Required: entry.Required,
			Default: ferrule.CleanJSON(entry.Default), Example: ferrule.CleanJSON(entry.Example), Selector: ferrule.CleanJSON(entry.Selector),
			Features: masks, Attributes: entry.Filter.Attribute,
		})
	}
	slices.SortFunc(s.Fields, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
}

// translate sets the texts that a service lacks.
func (s *Service) translate(texts map[string]string) {
	set := func(to *string, key string, limit int) {
		if *to == "" {
			*to = ferrule.Clean(texts[key], limit)
		}
	}
	prefix := "component." + s.Domain + ".services." + s.Name
	set(&s.Title, prefix+".name", maxName)
	set(&s.Text, prefix+".description", maxText)
	for i := range s.Fields {
		f := &s.Fields[i]
		set(&f.Title, prefix+".fields."+f.Name+".name", maxName)
		set(&f.Text, prefix+".fields."+f.Name+".description", maxText)
	}
}

// Fits reports whether the service acts on an entity: one of its targets fits.
func (s *Service) Fits(e *Entity) bool {
	return slices.ContainsFunc(s.Targets, func(t Target) bool { return t.Fits(e) })
}

// Fits reports whether an entity is one of the target's.
func (t Target) Fits(e *Entity) bool {
	has := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	return has(t.Domains, e.Domain) && has(t.Platforms, e.Platform) && has(t.Classes, e.Class) && HasFeatures(t.Features, e.Features)
}

// HasFeatures reports whether features have all bits of one of the masks, or there is no mask.
func HasFeatures(masks []int, features int) bool {
	return len(masks) == 0 || slices.ContainsFunc(masks, func(mask int) bool { return features&mask == mask })
}
