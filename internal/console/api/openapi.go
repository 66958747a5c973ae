package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/schema"
)

// about introduces the API in its description.
const about = "What a person can do with the console of a Ferrule gateway. Log in with a browser first: the cookie of the session is the credential. A POST also needs the CSRF token of the session in X-CSRF-Token; GET " + Prefix + "/session returns it."

// OpenAPI returns the description of the operations. It is the same for the same operations.
func (a *API) OpenAPI() map[string]any {
	paths := make(map[string]map[string]any)
	for _, o := range a.all {
		path := Prefix + o.Path
		if paths[path] == nil {
			paths[path] = make(map[string]any)
		}
		paths[path][strings.ToLower(o.Method)] = o.describe()
	}
	failed, err := schema.For[failure]()
	if err != nil {
		panic(err) // a type of ours
	}
	return map[string]any{
		"openapi": "3.1.0",
		"info":    map[string]any{"title": "Ferrule", "version": "1", "description": about},
		"paths":   paths,
		"components": map[string]any{
			"schemas":   map[string]any{"Error": failed},
			"responses": map[string]any{"Error": map[string]any{"description": "an error", "content": content(map[string]any{"$ref": "#/components/schemas/Error"})}},
			"securitySchemes": map[string]any{
				"session": map[string]any{"type": "apiKey", "in": "cookie", "name": "ferrule", "description": "The cookie of the session. Its name ends with the port of the gateway: ferrule-3377. With TLS it is __Host-ferrule."},
				"csrf":    map[string]any{"type": "apiKey", "in": "header", "name": "X-CSRF-Token", "description": "The CSRF token of the session."},
			},
		},
	}
}

// describe returns the OpenAPI description of an operation.
func (o *Operation) describe() map[string]any {
	inPath, parameters := pathNames(o.Path), []any{}
	add := func(name, in string, required bool) {
		s, text := withoutDescription(o.schemas().takes.Properties[name])
		p := map[string]any{"name": name, "in": in, "required": required, "schema": s}
		if text != "" {
			p["description"] = text
		}
		parameters = append(parameters, p)
	}
	for _, name := range inPath {
		add(name, "path", true)
	}
	needs := map[string]any{"session": []any{}}
	d := map[string]any{
		"operationId": o.id(), "tags": []string{strings.Split(o.Path, "/")[1]},
		"summary": o.Summary, "description": "Needs the scope " + o.Scope.Names()[len(o.Scope.Names())-1] + ".",
		"security":  []any{needs},
		"responses": map[string]any{"200": map[string]any{"description": "the result", "content": content(o.schemas().output)}, "default": map[string]any{"$ref": "#/components/responses/Error"}},
	}
	if o.Method == http.MethodGet {
		for _, name := range slices.Sorted(maps.Keys(o.schemas().takes.Properties)) {
			if !slices.Contains(inPath, name) {
				add(name, "query", slices.Contains(o.schemas().takes.Required, name))
			}
		}
	} else {
		needs["csrf"] = []any{}
		d["requestBody"] = map[string]any{"content": content(o.body(inPath))}
	}
	d["parameters"] = parameters
	return d
}

// id returns a name for the operation, for programs that generate code: post_devices_rename.
func (o *Operation) id() string {
	words := []string{strings.ToLower(o.Method)}
	for _, part := range strings.Split(o.Path, "/") {
		if part != "" {
			words = append(words, strings.Trim(part, "{}"))
		}
	}
	return strings.NewReplacer("-", "_", ".", "_").Replace(strings.Join(words, "_"))
}

func content(s any) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": s}}
}

// withoutDescription returns a schema and its description, which parameters have outside.
func withoutDescription(property json.RawMessage) (s map[string]any, text string) {
	json.Unmarshal(property, &s) // it was derived by us
	text, _ = s["description"].(string)
	delete(s, "description")
	return s, text
}

// body returns the schema of the body: the input without the values that the path has.
func (o *Operation) body(inPath []string) map[string]any {
	var s map[string]any
	json.Unmarshal(o.schemas().input, &s) // it was derived by us
	if properties, ok := s["properties"].(map[string]any); ok {
		for _, name := range inPath {
			delete(properties, name)
		}
	}
	required := slices.DeleteFunc(slices.Clone(o.schemas().takes.Required), func(name string) bool { return slices.Contains(inPath, name) })
	if delete(s, "required"); len(required) > 0 {
		s["required"] = required
	}
	return s
}
