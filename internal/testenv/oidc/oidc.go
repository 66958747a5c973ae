// Package oidc runs a real OpenID Connect provider for tests, and logs in at it without a
// browser.
package oidc

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Dir returns the directory in which the provider is installed, and skips the test if there
// is none.
func Dir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("FERRULE_TEST_OIDC")
	if dir == "" {
		t.Skip("FERRULE_TEST_OIDC is not set: see internal/testenv/oidc")
	}
	return dir
}

// Start runs a provider until the test ends, and returns its issuer URL. The variables are
// those of server.mjs, for example GROUPS=staff.
func Start(t testing.TB, variables ...string) (issuer string) {
	t.Helper()
	dir := Dir(t)
	cmd := exec.Command("node", filepath.Join(dir, "server.mjs"))
	cmd.Env = append(os.Environ(), variables...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // it ends then
		cmd.Wait()
	})
	issuer, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the provider says %q, %v", issuer, err)
	}
	go io.Copy(io.Discard, out)
	return strings.TrimSpace(issuer)
}

// redirect is where the agents of this package get their codes. Nobody listens there.
const redirect = "http://127.0.0.1:1/callback"

// Tokens are what the provider gives to an agent.
type Tokens struct {
	Access string `json:"access_token"`
	ID     string `json:"id_token"`
}

// Login registers an agent, logs a person in, and returns the agent's tokens: an
// authorization code with PKCE, for a resource and scopes.
func Login(ctx context.Context, issuer, person, resource string, scopes ...string) (tokens Tokens, err error) {
	var client struct {
		ID string `json:"client_id"`
	}
	registration := fmt.Sprintf(`{"redirect_uris":[%q],"token_endpoint_auth_method":"none","application_type":"native"}`, redirect)
	if err := post(ctx, issuer+"/reg", "application/json", registration, &client); err != nil {
		return tokens, fmt.Errorf("registering: %w", err)
	}
	verifier := rand.Text() + rand.Text()
	challenge := sha256.Sum256([]byte(verifier))
	back, err := Browse(ctx, issuer+"/auth?"+url.Values{
		"client_id": {client.ID}, "redirect_uri": {redirect}, "response_type": {"code"}, "state": {"a state"}, "nonce": {"a nonce"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(challenge[:])}, "code_challenge_method": {"S256"},
		"scope": {strings.Join(append([]string{"openid"}, scopes...), " ")}, "resource": {resource},
	}.Encode(), redirect, person)
	if err != nil {
		return tokens, err
	}
	if back.Query().Get("code") == "" {
		return tokens, fmt.Errorf("no code in %s", back)
	}
	err = post(ctx, issuer+"/token", "application/x-www-form-urlencoded", url.Values{
		"grant_type": {"authorization_code"}, "code": {back.Query().Get("code")}, "redirect_uri": {redirect},
		"client_id": {client.ID}, "code_verifier": {verifier},
	}.Encode(), &tokens)
	return tokens, err
}

var (
	formAction = regexp.MustCompile(`<form[^>]* action="([^"]+)"`)
	formPrompt = regexp.MustCompile(`name="prompt" value="([^"]+)"`)
)

// Browse opens a page of the provider, sends its forms as a person, and returns where the
// provider sends the browser in the end. That URL begins with redirect, and is not opened.
func Browse(ctx context.Context, page, redirect, person string) (*url.URL, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	var back *url.URL
	client := &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), redirect) {
			back = r.URL
			return http.ErrUseLastResponse
		}
		return nil
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, err
	}
	for range 5 {
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if back != nil || err != nil {
			return back, err
		}
		action, prompt := formAction.FindSubmatch(text), formPrompt.FindSubmatch(text)
		if action == nil || prompt == nil {
			return nil, fmt.Errorf("%s: %s", resp.Status, text)
		}
		at, err := resp.Request.URL.Parse(html.UnescapeString(string(action[1])))
		if err != nil {
			return nil, err
		}
		form := url.Values{"prompt": {string(prompt[1])}, "login": {person}, "password": {"any"}}
		if req, err = http.NewRequestWithContext(ctx, http.MethodPost, at.String(), strings.NewReader(form.Encode())); err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return nil, errors.New("the provider shows one form after the other")
}

func post(ctx context.Context, at, contentType, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	return json.Unmarshal(text, into)
}
