package schema

// portableWords are the keywords that clients of every sort read. What holds
// schemas among them is handled by name below.
var portableWords = []string{
	"title", "description", "default", "enum", "const", "format",
	"minimum", "maximum", "multipleOf", "minLength", "maxLength", "pattern",
	"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "required",
}

// portableRoot makes a schema that inline returned portable. Rules that join
// several schemas are left out at the root, where some clients refuse them;
// they are checked all the same when the tool is called.
func portableRoot(doc map[string]any) map[string]any { return root(portable(doc)) }

// widerRoot is the portable form of a schema of answers.
func widerRoot(doc map[string]any) map[string]any { return root(wider(portable(doc), doc)) }

// wider takes out of a portable schema what it says beyond the schema that it was
// made of.
func wider(out, doc map[string]any) map[string]any {
	if _, several := doc["type"].([]any); several {
		delete(out, "type")
	}
	if _, more := doc["patternProperties"]; more {
		delete(out, "additionalProperties")
	}
	if _, first := doc["prefixItems"]; first {
		delete(out, "items")
	}
	delete(out, "format") // some clients hold answers to it
	each := func(word string) {
		shown, ok := out[word].(map[string]any)
		whole, was := doc[word].(map[string]any)
		if ok && was {
			wider(shown, whole)
		}
	}
	each("items")
	each("additionalProperties")
	if properties, ok := out["properties"].(map[string]any); ok {
		wholes, _ := doc["properties"].(map[string]any)
		for name, shown := range properties {
			if whole, ok := wholes[name].(map[string]any); ok {
				wider(shown.(map[string]any), whole)
			}
		}
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := out[word].([]any)
		wholes, _ := doc[word].([]any)
		for i, shown := range list {
			if whole, ok := wholes[i].(map[string]any); ok {
				wider(shown.(map[string]any), whole)
			}
		}
	}
	if either, ok := out["oneOf"]; ok { // of what is wider, several may fit
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
		if !more { // true says nothing
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

// portableProperties keeps every property that can be given: one whose schema
// is false cannot, and one whose schema is true can be anything.
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

// singleType is the one type to name where several are possible.
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
