package schema_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

type embedded struct {
	Inner string `json:"inner" jsonschema:"a \"quoted\" <text>"`
}

// everyKind has a field of every kind from which a schema can be derived.
type everyKind struct {
	embedded
	Bool     bool                  `json:"bool"`
	Int      int                   `json:"int,omitempty" jsonschema:"a number"`
	Int8     int8                  `json:"int8"`
	Int16    int16                 `json:"int16"`
	Int32    int32                 `json:"int32"`
	Int64    int64                 `json:"int64,omitzero"`
	Uint     uint                  `json:"uint"`
	Uint8    uint8                 `json:"uint8"`
	Uint16   uint16                `json:"uint16"`
	Uint32   uint32                `json:"uint32"`
	Uint64   uint64                `json:"uint64"`
	Float32  float32               `json:"float32"`
	Float64  float64               `json:"float64"`
	String   string                `json:"string"`
	Any      any                   `json:"any"`
	Pointer  *int                  `json:"pointer"`
	Slice    []string              `json:"slice"`
	Rows     [][]any               `json:"rows"`
	Array    [3]int8               `json:"array"`
	Map      map[string]int        `json:"map"`
	AnyMap   map[string]any        `json:"any_map,omitempty"`
	Structs  []embedded            `json:"structs,omitempty"`
	Nested   *embedded             `json:"nested,omitempty"`
	Empty    struct{}              `json:"empty"`
	Time     time.Time             `json:"time,omitzero"`
	Duration ferrule.Duration      `json:"duration"`
	Raw      json.RawMessage       `json:"raw,omitempty"`
	Object   schema.AnyObject      `json:"object"`
	ByName   map[string][]embedded `json:"by_name"`
	Bytes    []byte                `json:"bytes"`
	Scopes   ferrule.Scopes        `json:"scopes"`
}

// TestDerive checks that a derived schema is what the library encodes, and that it is valid and
// checks arguments like one that was compiled from that text.
func TestDerive(t *testing.T) {
	derived, err := schema.Derive[everyKind]()
	if err != nil {
		t.Fatal(err)
	}
	text, err := schema.For[everyKind]()
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := schema.Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := decoded(t, derived.Text()), decoded(t, text); !reflect.DeepEqual(got, want) {
		t.Errorf("derived %s, the library %s", derived.Text(), text)
	}
	if got, want := string(derived.Portable()), string(compiled.Portable()); got != want {
		t.Errorf("the portable form is %s, not %s", got, want)
	}
	for _, args := range []string{`{}`, `{"int8":200,"string":5,"extra":1,"array":[1,2]}`} {
		object := decoded(t, []byte(args)).(map[string]any)
		if got, want := derived.Check(object), compiled.Check(object); len(got) == 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, not %q", args, got, want)
		}
	}
}

// TestDeriveRefuses checks that a type without a usable schema is an error.
func TestDeriveRefuses(t *testing.T) {
	type two struct {
		embedded
		Again int `json:"inner"`
	}
	type deep struct {
		Lists [][][][][][][][][][][][][][][][][][][][][][][][][][][][][][][][][]int `json:"lists"`
	}
	for name, derive := range map[string]func() (*schema.Schema, error){
		"anything": schema.Derive[any], "a list": schema.Derive[[]string], "a function": schema.Derive[struct{ F func() }],
		"two fields with one name": schema.Derive[two], "the same in a list": schema.Derive[struct{ L []two }], "deep lists": schema.Derive[deep],
	} {
		if s, err := derive(); err == nil {
			t.Errorf("%s: derived %s", name, s.Text())
		}
	}
}

func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
