package oauth

import (
	"encoding/json"
	"net/http"
)

// metadata describes the server (RFC 8414).
type metadata struct {
	Issuer        string   `json:"issuer"`
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	Registration  string   `json:"registration_endpoint,omitempty"`
	Revocation    string   `json:"revocation_endpoint"`
	ResponseTypes []string `json:"response_types_supported"`
	ResponseModes []string `json:"response_modes_supported"`
	GrantTypes    []string `json:"grant_types_supported"`
	Challenges    []string `json:"code_challenge_methods_supported"`
	AuthMethods   []string `json:"token_endpoint_auth_methods_supported"`
	RevokeMethods []string `json:"revocation_endpoint_auth_methods_supported"`
	Scopes        []string `json:"scopes_supported"`
	Documents     bool     `json:"client_id_metadata_document_supported,omitempty"`
	Issues        bool     `json:"authorization_response_iss_parameter_supported"`
}

// offlineAccess is a scope that asks for refresh tokens. Everybody gets them.
const offlineAccess = "offline_access"

// offeredScopes are the scopes in the metadata. Some agents ask for all of them, so the
// others must be asked for by name.
var offeredScopes = []string{"read", "change", "endanger", offlineAccess}

// Supported grant and response types.
var (
	grantTypes    = []string{"authorization_code", "refresh_token"}
	responseTypes = []string{"code"}
)

// serveMetadata serves the metadata. Agents look for it in several places.
func (s *Server) serveMetadata(w http.ResponseWriter, r *http.Request) {
	origin := s.parts.Origin(r)
	m := metadata{
		Issuer: origin, Authorization: origin + authorizePath, Token: origin + tokenPath, Revocation: origin + revokePath,
		ResponseTypes: responseTypes, ResponseModes: []string{"query"}, GrantTypes: grantTypes, Challenges: []string{"S256"},
		// Agents that use documents stop if "none" is missing.
		AuthMethods: []string{"none"}, Scopes: offeredScopes, Documents: s.parts.Config.Documents, Issues: true,
	}
	if s.parts.Config.Register {
		m.Registration = origin + registerPath
	}
	if len(s.fixed) > 0 {
		m.AuthMethods = append(m.AuthMethods, "client_secret_basic", "client_secret_post")
	}
	m.RevokeMethods = m.AuthMethods
	// The answer depends on the Host header, which caches do not look at.
	answer(w, http.StatusOK, m)
}

// answer sends a value as JSON.
func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(value)
}

// answerError sends an error of RFC 6749.
func answerError(w http.ResponseWriter, status int, code, text string) {
	answer(w, status, struct {
		Error string `json:"error"`
		Text  string `json:"error_description,omitempty"`
	}{code, text})
}

// tooMany answers a request above the rate limit.
func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "10")
	answerError(w, http.StatusTooManyRequests, "temporarily_unavailable", "too many requests from this address; try again in 10 seconds")
}
