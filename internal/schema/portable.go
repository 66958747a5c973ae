package schema

// portableWords are the keywords that every client understands, except those that
// hold schemas.
var portableWords = []string{
	"title", "description", "default", "enum", "const", "format",
	"minimum", "maximum", "multipleOf", "minLength", "maxLength", "pattern",
	"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "required",
}

// portableRoot returns the portable form of an inlined schema of arguments. It
// drops allOf, anyOf and oneOf at the root, where some clients reject them. They
// are still checked when the tool is called.
func portableRoot(doc map[string]any) map[string]any { return root(portable(doc)) }

// looserRoot returns the portable form of an inlined schema of answers.
func looserRoot(doc map[string]any) map[string]any { return root(loosen(portable(doc), doc)) }

// loosen removes from a portable schema what is stricter than its source doc.
func loosen(out, doc map[string]any) map[string]any {
	if _, several := doc["type"].([]any); several {
		delete(out, "type")
	}
	if _, more := doc["patternProperties"]; more {
		delete(out, "additionalProperties")
	}
	if _, first := doc["prefixItems"]; first {
		delete(out, "items")
	}
	delete(out, "format") // some clients enforce it
	// The time that a client needs for a pattern has no limit, and it would match
	// the texts of the device that wrote the pattern.
	delete(out, "pattern")
	each := func(word string) {
		shown, ok := out[word].(map[string]any)
		source, was := doc[word].(map[string]any)
		if ok && was {
			loosen(shown, source)
		}
	}
	each("items")
	each("additionalProperties")
	if properties, ok := out["properties"].(map[string]any); ok {
		sources, _ := doc["properties"].(map[string]any)
		for name, shown := range properties {
			if source, ok := sources[name].(map[string]any); ok {
				loosen(shown.(map[string]any), source)
			}
		}
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := out[word].([]any)
		sources, _ := doc[word].([]any)
		for i, shown := range list {
			if source, ok := sources[i].(map[string]any); ok {
				loosen(shown.(map[string]any), source)
			}
		}
	}
	if either, ok := out["oneOf"]; ok { // looser alternatives may match together
		delete(out, "oneOf")
		if _, said := out["anyOf"]; !said {
			out["anyOf"] = either
		}
	}
	return out
}

func root(out map[string]any) map[string]any {
	out["type"] = "object"
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		delete(out, word)
	}
	if _, ok := out["properties"]; !ok {
		out["properties"] = map[string]any{}
	}
	return out
}

func portable(doc map[string]any) map[string]any {
	out := make(map[string]any, len(doc))
	for _, word := range portableWords {
		if v, ok := doc[word]; ok {
			out[word] = v
		}
	}
	if t, ok := singleType(doc["type"]); ok {
		out["type"] = t
	}
	for _, word := range []string{"exclusiveMinimum", "exclusiveMaximum"} {
		if v, ok := doc[word]; ok {
			if _, old := v.(bool); !old { // draft 4 has a flag there
				out[word] = v
			}
		}
	}
	if properties, ok := doc["properties"].(map[string]any); ok {
		out["properties"] = portableProperties(properties)
	}
	if items, ok := doc["items"].(map[string]any); ok {
		out["items"] = portable(items)
	}
	switch more := doc["additionalProperties"].(type) {
	case bool:
		if !more { // true is the default
			out["additionalProperties"] = false
		}
	case map[string]any:
		out["additionalProperties"] = portable(more)
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		if schemas, ok := doc[word].([]any); ok {
			out[word] = portableList(schemas)
		}
	}
	return out
}

// portableProperties drops properties whose schema is false, since they cannot be
// given. One whose schema is true may have any value.
func portableProperties(properties map[string]any) map[string]any {
	out := make(map[string]any, len(properties))
	for name, v := range properties {
		switch v := v.(type) {
		case map[string]any:
			out[name] = portable(v)
		case bool:
			if v {
				out[name] = map[string]any{}
			}
		}
	}
	return out
}

func portableList(schemas []any) []any {
	out := make([]any, 0, len(schemas))
	for _, v := range schemas {
		if object, ok := v.(map[string]any); ok {
			out = append(out, portable(object))
		} else {
			out = append(out, map[string]any{})
		}
	}
	return out
}

// singleType returns the first type that is not null.
func singleType(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []any:
		for _, e := range v {
			if t, ok := e.(string); ok && t != "null" {
				return t, true
			}
		}
	}
	return "", false
}
