package doctor

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/setup"
)

// CheckVariable is set in the environment of a command that the doctor starts: `ferrule
// mcp` then answers, but opens no port, requests no device and writes no file.
const CheckVariable = "FERRULE_CHECK"

// probeTime limits how long a server may take to answer.
const probeTime = 3 * time.Second

// maxAnswer limits the answer of a server, in bytes.
const maxAnswer = 1 << 20

// errNotTried means that a server was not tried out, on purpose.
var errNotTried = errors.New("not tried out")

// A server that refuses an entry is running.
var (
	errNoToken    = errors.New("needs a token, and the entry has none")
	errWrongToken = errors.New("does not accept the entry's token")
)

// elsewhere lists programs that start a command where CheckVariable does not arrive: what
// they start could open ports.
var elsewhere = []string{"docker", "podman", "nerdctl", "ssh", "wsl", "flatpak", "sudo"}

// probe does what an agent program does first: it starts the server, or connects to it,
// and sends an MCP initialize. It returns why that failed.
func (d *Doctor) probe(ctx context.Context, e setup.Entry) error {
	limit := cmp.Or(d.patience, probeTime)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var err error
	switch {
	case e.URL != "":
		err = probeURL(ctx, e)
	case e.Command != "":
		err = probeCommand(ctx, e)
	default:
		return errors.New("its entry has neither a command nor a URL")
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, errNotTried) {
		return fmt.Errorf("%s did not answer within %v", describeEntry(e), limit)
	}
	return err
}

// describeEntry returns the command or the URL of an entry, without secrets: arguments of
// other programs may contain tokens.
func describeEntry(e setup.Entry) string {
	if e.URL == "" {
		words := e.Command
		if isOwn(e) {
			words = ferrule.MaskURLs(strings.Join(append([]string{e.Command}, e.Args...), " "))
		}
		return "`" + ferrule.OneLine(words, 200) + "`"
	}
	u, err := url.Parse(e.URL)
	if err != nil {
		return "its URL"
	}
	return ferrule.OneLine((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String(), 200)
}

// isOwn reports whether an entry starts Ferrule, whose arguments have no tokens.
func isOwn(e setup.Entry) bool {
	return strings.TrimSuffix(filepath.Base(e.Command), ".exe") == "ferrule"
}

// initialize is the first message of an agent program.
const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"ferrule-doctor","version":"1"}}}`

// probeCommand starts a command and ends it when it has answered.
func probeCommand(ctx context.Context, e setup.Entry) error {
	name := strings.TrimSuffix(filepath.Base(e.Command), ".exe")
	if slices.Contains(elsewhere, name) {
		return fmt.Errorf("%w: what %s starts could open ports", errNotTried, name)
	}
	path, err := exec.LookPath(e.Command)
	if err != nil {
		return fmt.Errorf("%s does not exist or is not a program", e.Command)
	}
	cmd := exec.CommandContext(ctx, path, e.Args...)
	cmd.WaitDelay = lateTime // its children may keep its output open
	cmd.Env = os.Environ()
	for key, value := range e.Env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	cmd.Env = append(cmd.Env, CheckVariable+"=1")
	complaint := &tailBuffer{}
	cmd.Stderr = complaint
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s cannot be started: %w", e.Command, err)
	}
	go io.WriteString(in, initialize+"\n") // a command that does not read would block it
	err = readAnswer(out)
	in.Close()
	cmd.Cancel()
	cmd.Wait()
	if errors.Is(err, errNoAnswerIn) {
		if text := withoutSecrets(complaint.last(), e); text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return fmt.Errorf("%s %w", describeEntry(e), err)
	}
	return err
}

// withoutSecrets returns what a command complained about, without what its entry passes to
// it. It may repeat a token.
func withoutSecrets(text string, e setup.Entry) string {
	const short = 6 // such as an option
	passed := slices.Collect(maps.Values(e.Env))
	if !isOwn(e) {
		passed = append(passed, e.Args...)
	}
	for _, value := range passed {
		for _, word := range append(strings.Fields(value), value) {
			if len(word) > short {
				text = strings.ReplaceAll(text, word, "…")
			}
		}
	}
	return ferrule.MaskURLs(text)
}

// errNoAnswerIn means that the output of a server ended before its answer.
var errNoAnswerIn = errors.New("ended without an answer")

// readAnswer reads messages, one per line, until the answer to initialize.
func readAnswer(r io.Reader) error {
	_, err := readUntil(io.LimitReader(r, maxAnswer), parseAnswer)
	return err
}

// parseAnswer reports whether a message answers initialize, and whether it refuses.
func parseAnswer(message []byte) (mine bool, refused error) {
	var answer struct {
		ID     json.RawMessage
		Result *struct {
			ProtocolVersion string
		}
		Error *struct{ Message string }
	}
	if err := json.Unmarshal(message, &answer); err != nil || string(answer.ID) != "1" {
		return false, nil
	}
	switch {
	case answer.Error != nil:
		return true, fmt.Errorf("it refused to initialize: %s", ferrule.OneLine(ferrule.Clean(answer.Error.Message, ferrule.MaxText), 200))
	case answer.Result == nil || answer.Result.ProtocolVersion == "":
		return true, errors.New("it is not an MCP server")
	}
	return true, nil
}

// probeURL connects to a URL and ends the session that it was given.
func probeURL(ctx context.Context, e setup.Entry) error {
	resp, err := sendTo(ctx, e, http.MethodPost, "", initialize)
	if err != nil {
		return fmt.Errorf("%s cannot be reached: %w", describeEntry(e), withoutURL(err))
	}
	defer resp.Body.Close()
	if session := resp.Header.Get("Mcp-Session-Id"); session != "" {
		defer func() {
			if resp, err := sendTo(ctx, e, http.MethodDelete, session, ""); err == nil {
				resp.Body.Close()
			}
		}()
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized && e.Variables:
		return fmt.Errorf("%w: %s answers, and only the agent program knows its token", errNotTried, describeEntry(e))
	case resp.StatusCode == http.StatusUnauthorized && !slices.ContainsFunc(slices.Collect(maps.Keys(e.Headers)), isAuthorization):
		return fmt.Errorf("%s %w", describeEntry(e), errNoToken)
	case resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s %w", describeEntry(e), errWrongToken)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answers with %s", describeEntry(e), resp.Status)
	}
	if err := readEvents(resp.Body); err != nil {
		return fmt.Errorf("%s %w", describeEntry(e), err)
	}
	return nil
}

func isAuthorization(header string) bool { return strings.EqualFold(header, "Authorization") }

// sendTo sends a request to the URL of an entry, with its headers.
func sendTo(ctx context.Context, e setup.Entry, method, session, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.URL, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	for key, value := range e.Headers {
		req.Header.Set(key, value)
	}
	return (&http.Transport{DisableKeepAlives: true}).RoundTrip(req) // follows no redirects
}

// withoutURL removes a URL, which may contain secrets, from an error.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// readEvents reads the answer to initialize from a JSON document or from a stream of
// events.
func readEvents(r io.Reader) error {
	all, err := readUntil(io.LimitReader(r, maxAnswer), func(line []byte) (bool, error) {
		return parseAnswer(bytes.TrimPrefix(line, []byte("data:")))
	})
	if !errors.Is(err, errNoAnswerIn) {
		return err
	}
	if mine, refused := parseAnswer(all); mine { // a document of several lines
		return refused
	}
	return err
}

// readUntil calls parse with lines until one is the answer. It returns what it has read.
func readUntil(r io.Reader, parse func(line []byte) (bool, error)) (all []byte, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		if mine, err := parse(lines.Bytes()); mine {
			return all, err
		}
		all = append(append(all, lines.Bytes()...), '\n')
	}
	return all, errNoAnswerIn
}

// tailBuffer keeps the end of what is written to it.
type tailBuffer struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (b *tailBuffer) Write(p []byte) (int, error) {
	const limit = 4096
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	b.text = b.text[max(0, len(b.text)-limit):]
	return len(p), nil
}

// last returns the last lines in one.
func (b *tailBuffer) last() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return ferrule.OneLine(ferrule.Clean(strings.TrimSpace(string(b.text)), ferrule.MaxText), 300)
}
