package ferrule

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestTraceparent(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for text, want := range map[string]string{
		good:                               good,
		good[:53] + "00":                   good[:53] + "00",
		"cc" + good[2:]:                    good, // what a later version has in common
		"cc" + good[2:] + "-what-follows":  good,
		"":                                 "",
		"00":                               "",
		good + "-":                         "",
		good + "x":                         "",
		"cc" + good[2:] + "x":              "",
		"ff" + good[2:]:                    "",
		strings.ToUpper(good):              "",
		" " + good:                         "",
		good[:54]:                          "",
		strings.Replace(good, "-", "_", 1): "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": "",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": "",
		"00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01": "",
	} {
		if got := Traceparent(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func FuzzTraceparent(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more")
	f.Fuzz(func(t *testing.T, text string) {
		got := Traceparent(text)
		if got == "" {
			return
		}
		if got != Traceparent(got) || !strings.HasPrefix(text[2:], got[2:]) || len(strings.Split(got, "-")) != 4 {
			t.Errorf("%q became %q", text, got)
		}
	})
}

// notes is a Meter that writes down what it is told.
type notes struct {
	part string
	all  *[]string
}

func (n notes) Begin(ctx context.Context, call *Call) (context.Context, Span) {
	*n.all = append(*n.all, n.part+" begins")
	return context.WithValue(ctx, notes{}, n.part), Span{Tracked: call.Tool}
}

func (n notes) End(span Span, _ *Call, err error) {
	*n.all = append(*n.all, n.part+" ends: "+span.Tracked.(string)+", "+err.Error())
}

func TestMeasured(t *testing.T) {
	failed := errors.New("failed")
	end := func(ctx context.Context, _ *Call) (*Result, error) {
		if part := ctx.Value(notes{}); part != nil && part != "inner" {
			t.Errorf("the context is of %v", part)
		}
		return nil, failed
	}
	var all []string
	meters := Meters(func(part string) Meter { return notes{part, &all} })
	for _, m := range []Meters{meters, nil} {
		handle := Measured(m.For("outer"), Measured(m.For("inner"), end))
		if _, err := handle(t.Context(), &Call{Tool: "read"}); err != failed {
			t.Errorf("got %v", err)
		}
	}
	want := []string{"outer begins", "inner begins", "inner ends: read, failed", "outer ends: read, failed"}
	if !slices.Equal(all, want) {
		t.Errorf("got %q", all)
	}
	m := Meters(nil).For("lane")
	ctx, span := m.Begin(t.Context(), nil)
	if m.End(span, nil, nil); ctx != t.Context() || span != (Span{}) {
		t.Error("who measures nothing does something")
	}
}
