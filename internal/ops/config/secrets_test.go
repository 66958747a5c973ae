package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// secret is the token in the files of these tests.
const secret = "hunter2hunter2hunter2"

// TestErrorsHideSecrets: an error about a file never shows a token or a password that
// is in the file, wherever the mistake is.
func TestErrorsHideSecrets(t *testing.T) {
	for _, text := range []string{
		// a mistake next to a token
		"auth:\n  tokens:\n    - name: claude\n      token: SECRET\n      colour: red\n",
		"auth:\n  tokens:\n    - token: SECRET\n      nme: claude\n",
		"devices:\n  http:\n    - url: http://h/mcp\n      token: SECRET\n      baud: 5\n",
		"endpoints:\n  - url: wss://me:SECRET@h/?token=SECRET\n    nme: a\n",
		"cluster:\n  servers: ['nats://me:SECRET@h:4222']\n  mod: join\n",
		"telemetry:\n  traces:\n    endpoint: http://me:SECRET@h\n    rato: 1\n",
		// a token in the wrong place, or written wrongly
		"auth: {tokens: [{name: a, SECRET}]}\n",
		"auth: {tokens: [SECRET]}\n",
		"auth: {tokens: {claude: SECRET}}\n",
		"auth:\n  tokens:\n    - name: a\n      tokn: SECRET\n",
		"auth:\n  tokens:\n    - name: a\n      token:SECRET\n",
		"auth:\n  tokens:\n    - name: a\n     token: SECRET\n",
		"auth:\n  tokens:\n    - name: a\n      token: *SECRET\n",
		"auth:\n  tokens:\n    - name: a\n      token: SECRET\n      token: SECRET\n",
		"auth:\n  tokens:\n    - name: a\n      token: \"SECRET\n",
		"auth:\n  tokens:\n    - name: a\n      token: {SECRET: 1}\n",
		"auth:\n  tokens:\n    - name: a\n      token: [SECRET]\n",
		"SECRET\n",
		"SECRET: 1\n",
		// a URL that is refused for another reason
		"dial_in: {listen: '0.0.0.0:1', url: 'http://me:SECRET@h'}\n",
		"dial_in: {listen: '0.0.0.0:1', url: 'me:SECRET@h'}\n",
		"devices: {http: [{url: 'http://me:SECRET@h/mcp'}]}\n",
		"devices: {http: [{url: 'http://me:SECRET?SECRET@h/mcp'}]}\n",
		"devices: {http: [{url: 'http://h/mcp?token=SECRET'}]}\n",
		"devices: {http: [{url: 'ftp://me:SECRET@h/mcp'}]}\n",
		"devices: {mqtt: [{url: 'mqtt://me:SECRET@h'}]}\n",
		"devices: {mqtt: [{url: 'mqtt:me:SECRET@h'}]}\n",
		"devices: {mqtt: [{url: 'mqtt://h?password=SECRET'}]}\n",
		"devices: {mqtt: [{url: 'mqtt://h', user: a, password: SECRET, password_file: x}]}\n",
		"devices: {mqtt: [{url: 'mqtt://h', user: a, pasword: SECRET}]}\n",
		"devices: {mqtt: [{url: 'mqtt://h', password: SECRET}]}\n",
		"devices: {homeassistant: [{url: 'http://me:SECRET@h'}]}\n",
		"devices: {homeassistant: [{url: 'http://h?token=SECRET'}]}\n",
		"devices: {homeassistant: [{url: 'http://h', token: SECRET, file: x}]}\n",
		"devices: {homeassistant: [{url: 'http://h', tokn: SECRET}]}\n",
		"cluster: {mode: join, servers: ['me:SECRET@h:4222']}\n",
		"cluster: {mode: join, servers: ['nats://me:SECRET/@h:4222']}\n",
		"cluster: {mode: join, servers: ['nats://me:SECRET@']}\n",
		"cluster: {mode: join, node: 'nats://me:SECRET@h'}\n",
		"endpoints: [{name: a, url: 'https://me:SECRET@h/?token=SECRET'}]\n",
		"telemetry: {traces: {endpoint: 'ftp://me:SECRET@h'}}\n",
		"listen: http://me:SECRET@h:3377\n",
		"journal: {sync: 'http://me:SECRET@h'}\n",
	} {
		text = strings.ReplaceAll(text, "SECRET", secret)
		_, err := config.Parse([]byte(text))
		if err == nil {
			t.Errorf("no error: %s", text)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s\nshows the secret: %v", text, err)
		}
	}
}

// TestValuesHideSecrets: a config does not show its secrets when it is printed.
func TestValuesHideSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ferrule.yaml")
	write(t, path, strings.ReplaceAll(`
auth: {tokens: [{name: a, token: SECRET}]}
devices: {http: [{url: 'http://h/mcp', token: SECRET}], mqtt: [{url: 'mqtt://h', user: a, password: SECRET}], homeassistant: [{url: 'http://h', token: SECRET}]}
endpoints: [{name: a, url: 'wss://me:SECRET@h/?token=SECRET'}]
`, "SECRET", secret))
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	endpoints, err := c.EndpointConfigs()
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := c.Tokens()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Verify(t.Context(), secret, identity.Request{}); err != nil || c.HTTP(nil).Devices[0].Token != secret || c.Brokers()[0].Client().Password.Reveal() != secret || !strings.Contains(endpoints[0].URL.Reveal(), secret) || c.Homes()[0].Token.Reveal() != secret {
		t.Errorf("a secret is lost: %v", err)
	}
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v", c, c, c), fmt.Sprintf("%+v %#v %+v", endpoints, tokens, c.Brokers()[0].Client()), string(asJSON), string(asYAML)} {
		if strings.Contains(text, secret) {
			t.Errorf("shows the secret: %s", text)
		}
	}
}

// TestFileOfDevice: the token file of a device is relative to the config file, and so are
// the files of the certificate.
func TestFileOfDevice(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ferrule.yaml")
	write(t, path, "tls: {cert: a.pem, key: b.pem}\ndevices: {http: [{url: 'http://h/mcp', file: green.token}]}\n")
	for _, named := range []string{path, "ferrule.yaml"} {
		if named == "ferrule.yaml" {
			t.Chdir(dir)
		}
		c, err := config.Load(named)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "green.token"), secret+"\n")
		if data, err := os.ReadFile(c.HTTP(nil).Devices[0].TokenFile); err != nil || strings.TrimSpace(string(data)) != secret {
			t.Errorf("%s: %v", named, err)
		}
	}
	if c, err := config.Load(path); err != nil || c.TLS != (config.TLS{Cert: filepath.Join(dir, "a.pem"), Key: filepath.Join(dir, "b.pem")}) || c.Devices.HTTP[0].File != filepath.Join(dir, "green.token") {
		t.Errorf("got %+v, %v", c.Devices.HTTP, err)
	}
}
