package provision

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

// Identity is what a device claims about itself when it asks for its settings. It is
// not verified.
type Identity struct {
	// Address is the hardware address, such as 98:a3:16:f9:d9:34. It is never empty.
	Address string
	// ClientID is a UUID that the device generates, and keeps until its flash is erased.
	ClientID string
	Board    string
	Version  string
	Language string
}

var clientID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// readIdentity reads the identity in a request. Headers take precedence over the body.
func readIdentity(w http.ResponseWriter, r *http.Request) (Identity, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return Identity{}, fmt.Errorf("reading the request failed: too long, limit is %d bytes, or cut off", maxRequest)
	}
	id := parseIdentity(body)
	if address := r.Header.Get("Device-Id"); address != "" {
		id.Address = address
	}
	if client := r.Header.Get("Client-Id"); client != "" {
		id.ClientID = client
	}
	return id.checked()
}

// checked returns the identity with its address in canonical form, if address and
// client id are valid.
func (id Identity) checked() (Identity, error) {
	var err error
	if id.Address, err = transport.ParseMAC(id.Address); err != nil {
		return Identity{}, fmt.Errorf("Device-Id: %w", err)
	}
	if !clientID.MatchString(id.ClientID) {
		return Identity{}, errors.New("Client-Id: must be a UUID of at most 64 characters")
	}
	return id, nil
}

// parseIdentity reads the identity in a body. Boards differ in the members and their
// types: invalid ones are left out.
func parseIdentity(body []byte) Identity {
	var all map[string]any
	if json.Unmarshal(body, &all) != nil {
		return Identity{}
	}
	id := Identity{
		Address:  text(all, "mac_address"),
		ClientID: text(all, "uuid"),
		Board:    text(all, "board", "type"),
		Version:  text(all, "application", "version"),
		Language: text(all, "language"),
	}
	if id.Address == "" {
		id.Address = text(all, "board", "mac")
	}
	return id
}

// text returns the string at a path of members, or "".
func text(object map[string]any, path ...string) string {
	for _, name := range path[:len(path)-1] {
		object, _ = object[name].(map[string]any)
	}
	s, _ := object[path[len(path)-1]].(string)
	return ferrule.Clean(s, ferrule.MaxWord)
}
