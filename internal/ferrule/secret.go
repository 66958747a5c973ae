package ferrule

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
)

// Secret is a token, a password, or a URL that contains one. However it is printed,
// logged or encoded, its text does not appear; only Reveal returns it.
type Secret string

// masked replaces a secret.
const masked = "…"

// Reveal returns the text of the secret.
func (s Secret) Reveal() string { return string(s) }

// String returns a mask, or nothing if the secret is empty.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return masked
}

// Format implements fmt.Formatter: every verb prints the mask.
func (s Secret) Format(f fmt.State, verb rune) {
	text := s.String()
	if verb == 'q' || verb == 'v' && f.Flag('#') {
		text = `"` + text + `"`
	}
	io.WriteString(f, text)
}

// MarshalText encodes the mask, in JSON and in YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// unresolvedSecrets are the arguments that are masked while the tool of a call is unknown.
var unresolvedSecrets = []string{"code", "password", "pin_code"}

// MaskArgs returns the arguments of a call without its secrets, wherever in them they are. The
// tool is nil if it is unknown. Arguments of a tool with secrets that were not checked are
// masked as a whole: a secret may be in any of them.
func (t *Tool) MaskArgs(args json.RawMessage, checked bool) json.RawMessage {
	secrets := unresolvedSecrets
	if t != nil {
		secrets = t.Secrets
	}
	if len(secrets) == 0 || len(args) == 0 {
		return args
	}
	mask := AppendString(nil, masked)
	if t != nil && !checked {
		return mask
	}
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	var members map[string]any
	if dec.Decode(&members) != nil {
		return args // without a tool, or the check would have failed
	}
	if !maskMembers(members, secrets) {
		return args
	}
	text, err := json.Marshal(members)
	if err != nil {
		return mask
	}
	return text
}

// maskMembers masks the members with some names in a value, at any depth. It reports whether
// there are any.
func maskMembers(value any, names []string) (found bool) {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			if slices.ContainsFunc(names, func(s string) bool { return strings.EqualFold(s, name) }) {
				value[name], found = masked, true
			} else if maskMembers(member, names) {
				found = true
			}
		}
	case []any:
		for _, element := range value {
			if maskMembers(element, names) {
				found = true
			}
		}
	}
	return found
}

// MaskURL masks the parts of a URL that may be a secret: the user-info and the query.
// The URL may be malformed: everything before the last @ counts as user-info.
func MaskURL(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		scheme, rest = "", raw
	} else {
		scheme += "://"
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = masked + rest[i:]
	}
	if i := strings.IndexByte(rest, '?'); i >= 0 {
		rest = rest[:i] + "?" + masked
	}
	return scheme + rest
}

// urls matches the URLs in a text that may contain secrets: any with an @, and those of
// servers with a query.
var urls = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'` + "`" + `<>]*@[^\s"'` + "`" + `<>]*|(?:https?|wss?)://[^\s"'` + "`" + `<>]*\?[^\s"'` + "`" + `<>]*`)

// MaskURLs masks the secrets of all URLs in a text.
func MaskURLs(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	return urls.ReplaceAllStringFunc(text, func(found string) string {
		url := strings.TrimRight(found, ".,:;)") // of the sentence
		return MaskURL(url) + found[len(url):]
	})
}

// MaskError returns an error whose message has no secrets of URLs. It wraps err.
func MaskError(err error) error {
	if err == nil || MaskURLs(err.Error()) == err.Error() {
		return err
	}
	return maskedError{err}
}

type maskedError struct{ err error }

func (e maskedError) Error() string { return MaskURLs(e.err.Error()) }
func (e maskedError) Unwrap() error { return e.err }

// MaskLog returns a log handler that masks the secrets of URLs in messages, strings and
// errors. Libraries log addresses as they are configured.
func MaskLog(h slog.Handler) slog.Handler { return maskingHandler{h} }

type maskingHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h maskingHandler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, MaskURLs(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(maskAttr(a))
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// WithAttrs implements slog.Handler.
func (h maskingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return maskingHandler{h.Handler.WithAttrs(maskAttrs(attrs))}
}

// WithGroup implements slog.Handler.
func (h maskingHandler) WithGroup(name string) slog.Handler {
	return maskingHandler{h.Handler.WithGroup(name)}
}

func maskAttr(a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(MaskURLs(v.String()))
	case slog.KindGroup:
		a.Value = slog.GroupValue(maskAttrs(v.Group())...)
	case slog.KindAny:
		if text := fmt.Sprint(v.Any()); MaskURLs(text) != text {
			a.Value = slog.StringValue(MaskURLs(text))
		}
	}
	return a
}

func maskAttrs(attrs []slog.Attr) []slog.Attr {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = maskAttr(a)
	}
	return out
}
