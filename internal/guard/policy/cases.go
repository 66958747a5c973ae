package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// testCase is one entry of a test file: who calls what, and the expected verdict.
type testCase struct {
	Who       string            `yaml:"who"`
	Auth      ferrule.Auth      `yaml:"auth"`
	Groups    []string          `yaml:"groups"`
	User      string            `yaml:"user"`
	Via       string            `yaml:"via"`
	Device    string            `yaml:"device"`
	Kind      ferrule.Kind      `yaml:"kind"`
	Model     string            `yaml:"model"`
	Version   string            `yaml:"version"`
	Labels    map[string]string `yaml:"labels"`
	Transport string            `yaml:"transport"`
	Protocol  string            `yaml:"protocol"`
	Node      string            `yaml:"node"`
	Operation string            `yaml:"operation"`
	Tool      string            `yaml:"tool"`
	Effect    ferrule.Effect    `yaml:"effect"`
	Args      map[string]any    `yaml:"args"`
	At        string            `yaml:"at"`
	Expect    ferrule.Ruling    `yaml:"expect"`
}

// runCases runs the tests of a file and returns how many there are. The error has all that
// fail, each with its line.
func (p *Policy) runCases(f file) (n int, err error) {
	tree, err := parseYAML(f.text)
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil {
			return 0, fmt.Errorf("%s:%d: %s", f.name, at.GetToken().Position.Line, at.GetMessage())
		}
		return 0, fmt.Errorf("%s: %w", f.name, err)
	}
	var failed []error
	for _, doc := range tree.Docs {
		if doc.Body == nil {
			continue // an empty file
		}
		list, ok := doc.Body.(*ast.SequenceNode)
		if !ok {
			if _, empty := doc.Body.(*ast.CommentGroupNode); empty {
				continue
			}
			return 0, fmt.Errorf("%s:%d: must be a list of tests, each beginning with \"- who:\"", f.name, doc.Body.GetToken().Position.Line)
		}
		for _, item := range list.Values {
			n++
			if err := p.runCase(item); err != nil {
				failed = append(failed, fmt.Errorf("%s:%d: %w", f.name, item.GetToken().Position.Line, err))
			}
		}
	}
	return n, errors.Join(failed...)
}

// parseYAML parses a file that may be broken in any way.
func parseYAML(text []byte) (tree *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			tree, err = nil, fmt.Errorf("the YAML parser failed: %v", r)
		}
	}()
	if len(text) > maxFile {
		return nil, fmt.Errorf("has %d bytes; limit is %d", len(text), maxFile)
	}
	return parser.ParseBytes(text, 0)
}

// runCase runs one test.
func (p *Policy) runCase(item ast.Node) error {
	c, err := decodeCase(item)
	if err != nil {
		return err
	}
	call, at, err := c.call()
	if err != nil {
		return err
	}
	got := p.decide(call, at)
	if got.Ruling == c.Expect {
		return nil
	}
	return fmt.Errorf("expected %s, got %s for %s calling %s of %s: %s", c.Expect, got.Ruling, call.Principal, call.Tool, call.Device, got.Reason)
}

func decodeCase(item ast.Node) (c testCase, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the YAML decoder failed: %v", r)
		}
	}()
	if err := yaml.NodeToValue(item, &c, yaml.Strict()); err != nil {
		var at yaml.Error
		if errors.As(err, &at) {
			return c, errors.New(at.GetMessage())
		}
		return c, err
	}
	return c, nil
}

// call returns the call that a test describes, and when it is made.
func (c testCase) call() (*ferrule.Call, time.Time, error) {
	now := time.Now()
	switch {
	case c.Who == "" || c.Device == "" || c.Tool == "":
		return nil, now, errors.New("who, device and tool must be set")
	case c.Expect != ferrule.Permit && c.Expect != ferrule.Ask && c.Expect != ferrule.Forbid:
		return nil, now, fmt.Errorf("expect must be permit, ask or forbid, got %q", ferrule.Clean(string(c.Expect), ferrule.MaxWord))
	}
	op := ferrule.Operation(c.Operation)
	if c.Operation == "call" {
		op = ferrule.CallTool
	}
	if actionNames[op] == "" {
		return nil, now, fmt.Errorf("operation must be call, read, prompt, complete or subscribe, got %q", ferrule.Clean(c.Operation, ferrule.MaxWord))
	}
	switch c.Effect {
	case "", ferrule.Reads, ferrule.Changes, ferrule.Endangers:
	default:
		return nil, now, fmt.Errorf("effect must be reads, changes or endangers, got %q", ferrule.Clean(string(c.Effect), ferrule.MaxWord))
	}
	if c.At != "" {
		var err error
		if now, err = time.ParseInLocation("2006-01-02 15:04", c.At, time.Local); err != nil {
			return nil, now, fmt.Errorf("at must be a time such as 2026-11-30 22:15, got %q", ferrule.Clean(c.At, ferrule.MaxWord))
		}
	}
	args, err := decodedArgs(c.Args)
	if err != nil {
		return nil, now, err
	}
	who := ParsePrincipal(c.Who)
	who.Auth, who.User, who.Groups = c.Auth, c.User, strings.Join(c.Groups, ",")
	return &ferrule.Call{
		Principal: who, Via: c.Via, Device: c.Device, Operation: op, Tool: c.Tool, DecodedArgs: args,
		Target: ferrule.Target{
			Device: &ferrule.Device{
				ID: c.Device, Kind: c.Kind, Model: c.Model, Version: c.Version, Labels: c.Labels, Transport: c.Transport, Protocol: c.Protocol, Node: c.Node,
			},
			Tool: &ferrule.Tool{Name: c.Tool, Effect: c.Effect},
		},
	}, now, nil
}

// decodedArgs returns arguments as the pipeline decodes them.
func decodedArgs(args map[string]any) (decoded map[string]any, err error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&decoded)
	return decoded, err
}
