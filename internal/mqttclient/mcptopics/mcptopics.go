// Package mcptopics has the topics, notices and properties of MCP over MQTT, which servers
// and clients on a broker share.
package mcptopics

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// Server is the identity of a server on a broker.
type Server struct {
	// ID is its MQTT client ID. Name has levels, such as light/rgb/kitchen.
	ID, Name string
}

// Limits of what a peer can choose.
const (
	maxID     = 128
	maxName   = 256
	maxNotice = 64 << 10
)

const (
	presencePrefix = "$mcp-server/presence/"
	// PresenceFilter is the subscription for all servers.
	PresenceFilter = presencePrefix + "+/#"
)

// Control is where the server gets initialize.
func (s Server) Control() string { return "$mcp-server/" + s.ID + "/" + s.Name }

// Presence is where the server announces itself.
func (s Server) Presence() string { return presencePrefix + s.ID + "/" + s.Name }

// Capability is where the server says what has changed.
func (s Server) Capability() string { return "$mcp-server/capability/" + s.ID + "/" + s.Name }

// RPC is where the server and a client exchange all other messages.
func (s Server) RPC(client string) string { return "$mcp-rpc/" + client + "/" + s.ID + "/" + s.Name }

// Check returns an error if the server cannot be part of topics.
func (s Server) Check() error {
	if err := CheckID(s.ID); err != nil {
		return fmt.Errorf("server ID: %w", err)
	}
	switch {
	case s.ID == "presence" || s.ID == "capability":
		return fmt.Errorf("server ID: %q is part of other topics", s.ID)
	case s.Name == "" || len(s.Name) > maxName:
		return fmt.Errorf("server name: must have from 1 to %d bytes", maxName)
	case !plain(s.Name) || strings.ContainsAny(s.Name, "+#"):
		return errors.New("server name: must be plain text without + and #")
	case slices.Contains(strings.Split(s.Name, "/"), ""):
		return errors.New("server name: must not have an empty level")
	}
	return nil
}

// CheckID returns an error if a client ID cannot be part of topics.
func CheckID(id string) error {
	switch {
	case id == "" || len(id) > maxID:
		return fmt.Errorf("must have from 1 to %d bytes", maxID)
	case !plain(id) || strings.ContainsAny(id, "/+#"):
		return errors.New("must be plain text without /, + and #")
	}
	return nil
}

// plain reports whether a text is what it looks like, and has one line.
func plain(s string) bool {
	return ferrule.Clean(s, len(s)) == s && !strings.ContainsAny(s, "\t\n")
}

// ClientPresence is where a client says that it is gone.
func ClientPresence(client string) string { return "$mcp-client/presence/" + client }

// ClientCapability is where a client says what has changed.
func ClientCapability(client string) string { return "$mcp-client/capability/" + client }

// ParsePresence returns the server of a presence topic.
func ParsePresence(topic string) (Server, error) {
	rest, ok := strings.CutPrefix(topic, presencePrefix)
	if !ok {
		return Server{}, errors.New("not a presence topic")
	}
	var s Server
	s.ID, s.Name, _ = strings.Cut(rest, "/")
	return s, s.Check()
}

// Notice is the announcement of a server.
type Notice struct {
	// Gateway reports that the server is a gateway such as this one.
	Gateway bool
}

// The methods of messages that the transport handles itself.
const (
	// MethodInitialize starts a session.
	MethodInitialize = "initialize"
	methodOnline     = "notifications/server/online"
	// MethodDisconnected ends a session.
	MethodDisconnected = "notifications/disconnected"
)

// ErrVersion is the error for a broker with MQTT 3.1.1.
var ErrVersion = errors.New("MCP over MQTT needs MQTT 5, and the broker has only 3.1.1")

// Disconnected is the message that ends a session.
var Disconnected = []byte(`{"jsonrpc":"2.0","method":"` + MethodDisconnected + `"}`)

// GatewayMeta marks the announcement of a gateway.
const GatewayMeta = "ferrule/gateway"

// Online returns the announcement of this gateway.
func Online(name, description string) []byte {
	out, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": methodOnline, "params": map[string]any{
		"server_name": name, "description": description, "meta": map[string]any{GatewayMeta: true},
	}}) // texts can always be encoded
	return out
}

// ParseNotice decodes the announcement of a server. Its name is that of the topic: some
// servers leave it out here.
func ParseNotice(payload []byte) (Notice, error) {
	if len(payload) > maxNotice {
		return Notice{}, fmt.Errorf("has %d bytes; limit is %d", len(payload), maxNotice)
	}
	if err := strictjson.Check(payload); err != nil {
		return Notice{}, err
	}
	var m struct {
		Method string
		Params struct {
			Meta map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(payload, &m); err != nil || m.Method != methodOnline {
		return Notice{}, errors.New("not an announcement")
	}
	return Notice{Gateway: string(m.Params.Meta[GatewayMeta]) == "true"}, nil
}

// The user properties of the specification.
const (
	propertyType = "MCP-COMPONENT-TYPE"
	propertyID   = "MCP-MQTT-CLIENT-ID"
	propertyMeta = "MCP-META"
	propertyName = "MCP-SERVER-NAME"

	// TypeServer and TypeClient are the roles.
	TypeServer = "mcp-server"
	TypeClient = "mcp-client"
)

// ConnectProperties are the properties of CONNECT for a role.
func ConnectProperties(role string) []mqttclient.Property {
	return []mqttclient.Property{{Name: propertyType, Value: role}, {Name: propertyMeta, Value: `{"name":"ferrule"}`}}
}

// PublishProperties are the properties of each message.
func PublishProperties(role, id string) []mqttclient.Property {
	return []mqttclient.Property{{Name: propertyType, Value: role}, {Name: propertyID, Value: id}}
}

// GivenName returns the name that a broker gives to this server; empty if it gives none.
func GivenName(conn *mqttclient.Conn) string { return property(conn.Properties(), propertyName) }

// Sender returns the client ID that a message claims as its sender; empty if it has none.
func Sender(m mqttclient.Message) string { return property(m.Properties, propertyID) }

// property returns the value of a property; empty if there is none.
func property(all []mqttclient.Property, name string) string {
	for _, p := range all {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}

// Method returns the method of a message; empty if it has none.
func Method(data []byte) string {
	var m struct{ Method string }
	json.Unmarshal(data, &m) // the method stays empty
	return m.Method
}
