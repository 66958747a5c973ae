package xiaozhi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Visitor is a device that asks for its settings, as it says of itself. Nothing of
// it is proven.
type Visitor struct {
	// Address is its hardware address, such as 98:a3:16:f9:d9:34; never empty.
	Address string
	// ClientID is a UUID that it made itself, and keeps until its flash is erased.
	ClientID string
	Board    string
	Version  string
	Language string
}

var clientID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// readVisitor reads who is asking: of the headers first, and of the body what they
// do not say.
func readVisitor(w http.ResponseWriter, r *http.Request) (Visitor, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxVisit))
	if err != nil {
		return Visitor{}, fmt.Errorf("the request cannot be read: it has more than %d bytes, or broke off", maxVisit)
	}
	v := parseVisitor(body)
	if id := r.Header.Get("Device-Id"); id != "" {
		v.Address = id
	}
	if id := r.Header.Get("Client-Id"); id != "" {
		v.ClientID = id
	}
	return v.checked()
}

// checked is the visitor with its address as it is written here, if it says who it
// is.
func (v Visitor) checked() (Visitor, error) {
	var err error
	if v.Address, err = transport.ParseMAC(v.Address); err != nil {
		return Visitor{}, fmt.Errorf("Device-Id: %w", err)
	}
	if !clientID.MatchString(v.ClientID) {
		return Visitor{}, errors.New("Client-Id: want the UUID of the device, of 64 characters at most")
	}
	return v, nil
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
