package websocket

import (
	"net/http"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// identity is what a device reports about itself when it connects.
type identity struct {
	address string // its MAC
	client  string
	token   string
	version int // of its audio framing
}

const (
	maxClient = 128
	maxToken  = 4096
)

// identify reads the identity from a request. Stock firmware sends it in headers; a web
// page can only put it into the query.
func identify(r *http.Request) (identity, error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return identity{}, refusal{status: http.StatusUpgradeRequired, text: "this is a WebSocket endpoint for devices"}
	}
	query := r.URL.Query()
	value := func(name string) (string, error) {
		all := r.Header.Values(name)
		if len(all) == 0 {
			all = query[strings.ToLower(name)]
		}
		switch len(all) {
		case 0:
			return "", nil
		case 1:
			return strings.Clone(all[0]), nil // do not keep the whole header in memory
		}
		return "", refusal{status: http.StatusBadRequest, text: name + " is sent twice"}
	}
	var id identity
	device, err := value("Device-Id")
	if err != nil {
		return identity{}, err
	}
	if id.address, err = transport.ParseMAC(device); err != nil {
		return identity{}, refusal{status: http.StatusBadRequest, text: "Device-Id: " + err.Error()}
	}
	if id.client, err = value("Client-Id"); err != nil {
		return identity{}, err
	}
	if id.token, err = value("Authorization"); err != nil {
		return identity{}, err
	}
	id.token = bearer(id.token)
	if len(id.client) > maxClient || len(id.token) > maxToken {
		return identity{}, refusal{status: http.StatusBadRequest, text: "Client-Id or Authorization is too long"}
	}
	version, err := value("Protocol-Version")
	if err != nil {
		return identity{}, err
	}
	id.version = parseVersion(version)
	return id, nil
}

// bearer returns the token of an Authorization header. A token with another scheme is
// returned as it is, because firmware sends such tokens.
func bearer(s string) string {
	const scheme = "Bearer "
	if len(s) >= len(scheme) && strings.EqualFold(s[:len(scheme)], scheme) {
		s = s[len(scheme):]
	}
	return strings.TrimSpace(s)
}

// parseVersion returns the version of the audio framing; 1 is the default.
func parseVersion(s string) int {
	switch s {
	case "2":
		return 2
	case "3":
		return 3
	}
	return 1
}
