package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// maxBody limits the size of a request, in bytes.
const maxBody = 1 << 20

// Operation is one operation of the API.
type Operation struct {
	// Method is GET, or POST if the operation changes something or calls a tool: forms can
	// send nothing else.
	Method, Path string
	// Summary is one sentence for the reference.
	Summary string
	// Scope is what a person needs at least. What an operation calls may need more.
	Scope ferrule.Scopes

	schemas func() *schemas
	run     func(ctx context.Context, who ferrule.Principal, input []byte) (any, error)
}

// schemas are those of an operation. They are derived when they are needed: most gateways start
// without a person who looks.
type schemas struct {
	input, output json.RawMessage
	takes         inputSchema
	check         *schema.Schema // of the input
	err           error          // why the operation cannot be described
}

// inputSchema is the schema of an operation's input.
type inputSchema struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
}

// operation returns an Operation that calls a function. Its input has the values of the path
// and, for a GET, of the query; otherwise, of the body, which is a JSON object.
func operation[In, Out any](method, path, summary string, scope ferrule.Scopes, fn func(ctx context.Context, who ferrule.Principal, in In) (Out, error)) Operation {
	o := Operation{Method: method, Path: path, Summary: summary, Scope: scope}
	o.run = func(ctx context.Context, who ferrule.Principal, input []byte) (any, error) {
		var in In
		if err := json.Unmarshal(input, &in); err != nil {
			return nil, ferrule.Errorf(ferrule.Invalid, "the request is not valid: %w", err)
		}
		return fn(ctx, who, in)
	}
	o.schemas = sync.OnceValue(func() *schemas {
		s := &schemas{}
		var errs [2]error
		s.input, errs[0] = schema.For[In]()
		s.output, errs[1] = schema.For[Out]()
		if s.err = errors.Join(errs[:]...); s.err == nil {
			s.err = s.describeInput(method, path)
		}
		return s
	})
	return o
}

// describeInput reads the schema of the input, and checks that requests can have it.
func (s *schemas) describeInput(method, path string) (err error) {
	if err := json.Unmarshal(s.input, &s.takes); err != nil {
		return err
	}
	if s.check, err = schema.Compile(s.input); err != nil {
		return err
	}
	if method != http.MethodGet && method != http.MethodPost {
		return fmt.Errorf("the method must be GET or POST, got %s", method)
	}
	inURL := pathNames(path)
	if method == http.MethodGet {
		inURL = append(inURL, slices.Sorted(maps.Keys(s.takes.Properties))...)
	}
	for _, name := range inURL {
		property, ok := s.takes.Properties[name]
		if !ok {
			return fmt.Errorf("the input has no %s", name)
		}
		if _, err := kindOf(property); err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
	}
	return nil
}

// statusError is an error with a status of its own.
type statusError struct {
	status int
	error
}

// Unwrap returns the error.
func (e statusError) Unwrap() error { return e.error }

// read returns the input of a request as a JSON object that its schema permits.
func (o *Operation) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := o.schemas().err; err != nil { // a test describes them all
		return nil, err
	}
	var values map[string]any
	var err error
	if o.Method == http.MethodGet {
		values, err = o.readQuery(r.URL.Query())
	} else {
		values, err = o.readBody(w, r)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range pathNames(o.Path) {
		if _, ok := values[name]; ok {
			return nil, ferrule.Errorf(ferrule.Invalid, "%s is in the path of the URL", name)
		}
		if values[name], err = o.parse(name, []string{r.PathValue(name)}); err != nil {
			return nil, err
		}
	}
	if wrong := o.schemas().check.Check(values); len(wrong) > 0 {
		e := ferrule.Errorf(ferrule.Invalid, "the request is not valid: %s", wrong[0])
		e.Details = wrong
		return nil, e
	}
	return json.Marshal(values)
}

// readBody reads a JSON object. An empty body is an object without members.
func (o *Operation) readBody(w http.ResponseWriter, r *http.Request) (map[string]any, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return nil, statusError{http.StatusRequestEntityTooLarge, ferrule.Errorf(ferrule.Invalid, "the body has more than %d bytes", maxBody)}
	} else if err != nil {
		return nil, ferrule.Errorf(ferrule.Invalid, "the body ended early")
	}
	values := make(map[string]any)
	if len(bytes.TrimSpace(data)) == 0 {
		return values, nil
	}
	// A page of another site cannot send this type without being asked for permission.
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, statusError{http.StatusUnsupportedMediaType, ferrule.Errorf(ferrule.Invalid, "the body must have the content type application/json")}
	}
	if err := strictjson.Check(data); err != nil {
		return nil, ferrule.Errorf(ferrule.Invalid, "the body is not valid: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&values); err != nil || values == nil {
		return nil, ferrule.Errorf(ferrule.Invalid, "the body must be a JSON object")
	}
	return values, nil
}

// readQuery reads the values of a URL.
func (o *Operation) readQuery(query url.Values) (map[string]any, error) {
	values := make(map[string]any)
	for name, texts := range query {
		var err error
		if values[name], err = o.parse(name, texts); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// parse returns the texts of a URL as a value of the type that the schema has.
func (o *Operation) parse(name string, texts []string) (any, error) {
	property, ok := o.schemas().takes.Properties[name]
	if !ok {
		return nil, ferrule.Errorf(ferrule.Invalid, "unknown parameter %q", ferrule.Clean(name, ferrule.MaxWord))
	}
	kind, err := kindOf(property)
	if err != nil {
		return nil, err
	}
	if kind == "array" {
		list := make([]any, len(texts))
		for i, text := range texts {
			list[i] = text
		}
		return list, nil
	}
	if len(texts) != 1 {
		return nil, ferrule.Errorf(ferrule.Invalid, "%s must be given once", name)
	}
	text := texts[0]
	switch kind {
	case "boolean":
		if b, err := strconv.ParseBool(text); err == nil {
			return b, nil
		}
		return nil, ferrule.Errorf(ferrule.Invalid, "%s must be true or false, got %q", name, ferrule.Clean(text, ferrule.MaxWord))
	case "integer", "number":
		if _, err := strconv.ParseFloat(text, 64); err == nil && json.Valid([]byte(text)) {
			return json.Number(text), nil
		}
		return nil, ferrule.Errorf(ferrule.Invalid, "%s must be a number, got %q", name, ferrule.Clean(text, ferrule.MaxWord))
	}
	return text, nil
}

// kindOf returns the type of a value in a URL. A list has strings.
func kindOf(property json.RawMessage) (string, error) {
	var p struct {
		Type  any
		Items *struct{ Type string }
	}
	if err := json.Unmarshal(property, &p); err != nil {
		return "", err
	}
	kind, _ := p.Type.(string)
	// A type with null is of a pointer or a slice: null cannot be given.
	if types, ok := p.Type.([]any); ok && len(types) == 2 && types[0] == "null" {
		kind, _ = types[1].(string)
	}
	switch {
	case kind == "string", kind == "boolean", kind == "integer", kind == "number", kind == "array" && p.Items != nil && p.Items.Type == "string":
		return kind, nil
	}
	return "", errors.New("cannot be given in a URL")
}

var pathName = regexp.MustCompile(`\{(\w+)\}`)

// pathNames returns the names of the values in a path.
func pathNames(path string) (names []string) {
	for _, m := range pathName.FindAllStringSubmatch(path, -1) {
		names = append(names, m[1])
	}
	return names
}

// failure is an error as the API returns it.
type failure struct {
	Error failureDetails `json:"error"`
}

type failureDetails struct {
	Code       ferrule.Code `json:"code" jsonschema:"class of the error"`
	Message    string       `json:"message" jsonschema:"what happened"`
	Hint       string       `json:"hint,omitempty" jsonschema:"what to do next"`
	Details    []string     `json:"details,omitempty" jsonschema:"each violation, if there are several"`
	MayHaveRun bool         `json:"may_have_run" jsonschema:"whether the device may have done something"`
}

// Status returns the HTTP status of an error. Pages use the same.
func Status(err error) int {
	if own := (statusError{}); errors.As(err, &own) {
		return own.status
	}
	switch ferrule.AsError(err).Code {
	case ferrule.NotFound:
		return http.StatusNotFound
	case ferrule.Denied, ferrule.Pending:
		return http.StatusForbidden
	case ferrule.Invalid:
		return http.StatusBadRequest
	case ferrule.Limited:
		return http.StatusTooManyRequests
	case ferrule.Busy, ferrule.Refused:
		return http.StatusConflict
	case ferrule.Offline:
		return http.StatusServiceUnavailable
	case ferrule.Unanswered:
		return http.StatusGatewayTimeout
	case ferrule.Failed:
		return http.StatusBadGateway
	}
	return http.StatusInternalServerError
}

// writeError writes an error.
func writeError(w http.ResponseWriter, err error) {
	e := ferrule.AsError(err)
	writeJSON(w, Status(err), failure{failureDetails{e.Code, e.Message, e.Hint, e.Details, e.MayHaveRun()}})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	data, err := schema.Encode(value)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"the answer cannot be written as JSON","may_have_run":true}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(append(data, '\n'))
}
