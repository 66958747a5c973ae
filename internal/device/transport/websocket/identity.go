package websocket

import (
	"net/http"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// identity is what a device says about itself when it dials in.
type identity struct {
	address string // its MAC
	client  string
	token   string
	version int // of the framing of its sound
}

const (
	maxClient = 128
	maxToken  = 4096
)

// identify reads who is dialling. What stock firmware sends in headers, a page in
// a browser can only put into the query.
func identify(r *http.Request) (identity, error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return identity{}, refusal{status: http.StatusUpgradeRequired, text: "devices dial in here with a WebSocket"}
	}
	query := r.URL.Query()
	said := func(name string) (string, error) {
		all := r.Header.Values(name)
		if len(all) == 0 {
			all = query[strings.ToLower(name)]
		}
		switch len(all) {
		case 0:
			return "", nil
		case 1:
			return strings.Clone(all[0]), nil // without what it was cut from
		}
		return "", refusal{status: http.StatusBadRequest, text: name + " is given twice"}
	}
	var id identity
	device, err := said("Device-Id")
	if err != nil {
		return identity{}, err
	}
	if id.address, err = transport.ParseMAC(device); err != nil {
		return identity{}, refusal{status: http.StatusBadRequest, text: "Device-Id: " + err.Error()}
	}
	if id.client, err = said("Client-Id"); err != nil {
		return identity{}, err
	}
	if id.token, err = said("Authorization"); err != nil {
		return identity{}, err
	}
	id.token = bearer(id.token)
	if len(id.client) > maxClient || len(id.token) > maxToken {
		return identity{}, refusal{status: http.StatusBadRequest, text: "Client-Id or Authorization is too long"}
	}
	version, err := said("Protocol-Version")
	if err != nil {
		return identity{}, err
	}
	id.version = parseVersion(version)
	return id, nil
}

// bearer is the token in an Authorization. Firmware sends one with a scheme of its
// own as it is.
func bearer(s string) string {
	const scheme = "Bearer "
	if len(s) >= len(scheme) && strings.EqualFold(s[:len(scheme)], scheme) {
		s = s[len(scheme):]
	}
	return strings.TrimSpace(s)
}

// parseVersion is 1 unless a device says that it frames its sound otherwise.
func parseVersion(s string) int {
	switch s {
	case "2":
		return 2
	case "3":
		return 3
	}
	return 1
}
