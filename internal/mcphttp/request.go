package mcphttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// posted is what the body of a POST says before the SDK decodes it.
type posted struct {
	body   []byte
	id     json.RawMessage // of a single request; nil without one
	method string          // of a single message, or the first one of a batch
	batch  bool
}

// opens reports whether a message may begin a session, or needs none.
func (p posted) opens() bool {
	return p.method == "initialize" || p.method == "ping" || p.method == "server/discover"
}

// errNested means that a batch is in another one. The SDK would unpack it, but not those who
// look at the messages before.
var errNested = errors.New("a batch cannot have another batch in it")

// readPosted reads the body of a POST, which can be read again. It answers a request
// that has no valid body, and then ok is false.
func readPosted(w http.ResponseWriter, r *http.Request) (p posted, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, nil, jsonrpc.CodeInvalidRequest, fmt.Sprintf("request body exceeds %d bytes", MaxBody))
		return p, false
	case err != nil:
		refuse(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "failed to read the request body")
		return p, false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	p, err = parsePosted(body)
	p.body = body
	var duplicate *strictjson.DuplicateError
	switch {
	case errors.As(err, &duplicate), errors.Is(err, errNested):
		refuse(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "invalid request: "+err.Error())
	case err != nil:
		refuse(w, http.StatusBadRequest, nil, jsonrpc.CodeParseError, "parse error: "+err.Error())
	}
	return p, err == nil
}

// parsePosted looks at a body. A body without duplicate members has one meaning for
// every decoder. Whether its messages are valid is left to the SDK.
func parsePosted(body []byte) (p posted, err error) {
	if err := strictjson.Check(body); err != nil {
		return p, err
	}
	if body = bytes.TrimSpace(body); body[0] == '[' {
		p.batch = true
		var all []json.RawMessage
		if json.Unmarshal(body, &all) == nil && len(all) > 0 {
			body = all[0]
		}
		for _, one := range all {
			if one[0] == '[' {
				return p, errNested
			}
		}
	}
	for name, value := range strictjson.Members(body) {
		switch string(name) {
		case "id":
			if !p.batch && isID(value) {
				p.id = value
			}
		case "method":
			json.Unmarshal(value, &p.method) // empty if it is something else
		}
	}
	return p, nil
}

// OneMeaning reports whether a message has the same meaning for every decoder: no member is there
// twice.
func OneMeaning(message []byte) bool { return strictjson.Check(message) == nil }

// isID reports whether a value can be the ID of a request.
func isID(id json.RawMessage) bool {
	return len(id) > 0 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}

// refuse answers a request with a JSON-RPC error. Without an ID, the ID is null.
func refuse(w http.ResponseWriter, status int, id json.RawMessage, code int64, text string) {
	if id == nil {
		id = json.RawMessage("null")
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text}})
	if err != nil { // not with these types
		body = nil
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Del("X-Content-Type-Options")
	w.WriteHeader(status)
	w.Write(body) // if it fails, the client is gone
}
