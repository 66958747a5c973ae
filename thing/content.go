package thing

import "reflect"

// Image is a result that is an image. Protocols without images send it as JSON.
type Image struct {
	MIME string `json:"mimeType"`
	Data []byte `json:"data"`
}

// Audio is a result that is audio.
type Audio struct {
	MIME string `json:"mimeType"`
	Data []byte `json:"data"`
}

// Document is a result with a URI. It is text, or binary if Data is set.
type Document struct {
	URI  string `json:"uri"`
	MIME string `json:"mimeType"`
	Text string `json:"text,omitempty"`
	Data []byte `json:"data,omitempty"`
}

// Parts is a result of several parts: texts, images, audio and documents. Other values are
// sent as JSON.
type Parts []any

// isData reports whether a result is a JSON object, which has a schema.
func isData(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[Image](), reflect.TypeFor[Audio](), reflect.TypeFor[Document]():
		return false
	}
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Map
}
