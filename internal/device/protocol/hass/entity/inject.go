package entity

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/template"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// errForm has no detail, because a text may be secret.
var errForm = errors.New("a text has characters that would change the command: leave out quotes, backslashes, commas and brackets")

// free is a text that a caller chose, and not the device.
type free string

// split returns variables for a template, and the same ones with free texts that have no
// characters with a meaning in JSON; nil if there is no difference.
func split(vars template.Vars) (real, harmless template.Vars) {
	real = maps.Clone(vars)
	for name, value := range vars {
		text, ok := value.(free)
		if !ok {
			continue
		}
		real[name] = string(text)
		if plain := strings.Map(withoutMeaning, string(text)); plain != string(text) {
			if harmless == nil {
				harmless = template.Vars{}
			}
			harmless[name] = plain
		}
	}
	if harmless != nil {
		for name, value := range real {
			if _, ok := harmless[name]; !ok {
				harmless[name] = value
			}
		}
	}
	return real, harmless
}

// withoutMeaning drops the characters that begin or end something in JSON.
func withoutMeaning(r rune) rune {
	if r < ' ' || strings.ContainsRune(`"\{}[],`, r) {
		return -1
	}
	return r
}

// checkForm returns an error if a text of the caller makes another command of the message.
// Most templates put texts between quotes without escaping them:
//
//	{"action": "{{ value }}", "code": "{{ code }}"}
//
// A caller that may only lock could give the code 1","action":"UNLOCK. So the message must
// have the form that it has with harmless texts.
func checkForm(message, expected string) error {
	if start := strings.TrimSpace(message); !strings.HasPrefix(start, "{") && !strings.HasPrefix(start, "[") {
		return nil
	}
	var got, want any
	if strictjson.Check([]byte(message)) != nil || json.Unmarshal([]byte(message), &got) != nil || json.Unmarshal([]byte(expected), &want) != nil || !sameForm(got, want) {
		return errForm
	}
	return nil
}

// sameForm reports whether two JSON values differ in texts only.
func sameForm(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, sameForm)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameForm)
	case string:
		_, ok := b.(string)
		return ok
	}
	return a == b
}
