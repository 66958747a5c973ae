package xiaozhi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/ferrulehq/ferrule"
)

// Visitor is a device that asks for its settings, as it says of itself. Nothing of
// it is proven.
type Visitor struct {
	// Address is its hardware address, in lower case; never empty.
	Address string
	// ClientID is a UUID that it made itself, and keeps until its flash is erased.
	ClientID string
	Board    string
	Version  string
	Language string
}

var (
	deviceID = regexp.MustCompile(`^[a-z0-9][a-z0-9:._-]{0,63}$`)
	clientID = regexp.MustCompile(`^[A-Za-z0-9._-]{0,64}$`)
)

// readVisitor reads who is asking: of the headers first, and of the body what they
// do not say.
func readVisitor(w http.ResponseWriter, r *http.Request) (Visitor, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxVisit))
	if err != nil {
		return Visitor{}, fmt.Errorf("the request cannot be read: it has more than %d bytes, or broke off", maxVisit)
	}
	v := parseVisitor(body)
	if id := r.Header.Get("Device-Id"); id != "" {
		v.Address = strings.ToLower(id)
	}
	if id := r.Header.Get("Client-Id"); id != "" {
		v.ClientID = id
	}
	return v, v.check()
}

// check tells whether it says who it is.
func (v Visitor) check() error {
	switch {
	case v.Address == "":
		return errors.New("want a Device-Id, the device's hardware address")
	case !deviceID.MatchString(v.Address):
		return errors.New("the Device-Id is no hardware address")
	case !clientID.MatchString(v.ClientID):
		return errors.New("the Client-Id has characters that it cannot have")
	}
	return nil
}

// parseVisitor reads what firmware tells about itself. Boards differ in what they
// say and in its types: whatever cannot be read is left out.
func parseVisitor(body []byte) Visitor {
	var all map[string]any
	if json.Unmarshal(body, &all) != nil {
		return Visitor{}
	}
	v := Visitor{
		Address:  text(all, "mac_address"),
		ClientID: text(all, "uuid"),
		Board:    text(all, "board", "type"),
		Version:  text(all, "application", "version"),
		Language: text(all, "language"),
	}
	if v.Address == "" {
		v.Address = text(all, "board", "mac")
	}
	v.Address = strings.ToLower(v.Address)
	return v
}

// text is the text at a path of members; empty if there is none.
func text(object map[string]any, path ...string) string {
	for _, name := range path[:len(path)-1] {
		object, _ = object[name].(map[string]any)
	}
	s, _ := object[path[len(path)-1]].(string)
	return ferrule.Clean(s, ferrule.MaxWord)
}
