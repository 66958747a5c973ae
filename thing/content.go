package thing

import "reflect"

// Picture is a result that is a picture. Where a protocol has pictures it is one
// there.
type Picture struct {
	MIME string `json:"mimeType"`
	Data []byte `json:"data"`
}

// Sound is a result that is a sound.
type Sound struct {
	MIME string `json:"mimeType"`
	Data []byte `json:"data"`
}

// Document is a result that has an address of its own. It is text, or data if
// there is any.
type Document struct {
	URI  string `json:"uri"`
	MIME string `json:"mimeType"`
	Text string `json:"text,omitempty"`
	Data []byte `json:"data,omitempty"`
}

// Parts is a result of several parts: texts, pictures, sounds and documents.
// Whatever else is among them is told as JSON.
type Parts []any

// isData tells whether a result is an object, and not one to look at or to listen
// to: only those have schemas.
func isData(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[Picture](), reflect.TypeFor[Sound](), reflect.TypeFor[Document]():
		return false
	}
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Map
}
