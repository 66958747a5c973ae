package access

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/arguments"
	"github.com/ferrulehq/ferrule/internal/ops/setup"
)

// Setup adds Ferrule to the file of an agent program, removes it, or prints its entry.
type Setup struct {
	Name, HTTP             string // flags of `ferrule setup`
	Project, Print, Remove bool
	Flags                  []string // of `ferrule mcp`, which the program starts
	// Args returns the arguments with which the program starts `ferrule mcp`.
	Args func(flags []string) ([]string, error)
	// Service reports whether the packaged service is the gateway to use. The error is why a
	// service that runs cannot be used.
	Service func(ctx context.Context) (bool, error)
	// Tokens and AddToken call the gateway.
	Tokens   func(ctx context.Context) (builtin.ListTokensOutput, error)
	AddToken func(ctx context.Context, in builtin.AddTokenInput) (builtin.TokenOutput, error)
}

// SetupReport is the result of a Setup, as text and as a value for JSON.
type SetupReport struct {
	Text string
	JSON any
}

// Run does what the flags say. The error is an arguments.UsageError if they are wrong.
func (s Setup) Run(ctx context.Context, place setup.Place, client setup.Client) (SetupReport, error) {
	files, perm := client.Files(place, s.Project), fs.FileMode(0o600)
	if s.Project {
		perm = 0o644
	}
	if len(files) == 0 {
		return SetupReport{}, arguments.UsageError{Err: fmt.Errorf("%s has no project files; leave out --project", client.Title)}
	}
	file := setup.Choose(files)
	server := setup.Server{Name: s.Name}
	if !s.Remove {
		err := s.fill(ctx, &server)
		if e := (*ferrule.Error)(nil); err != nil && !errors.As(err, &e) { // of the gateway
			err = arguments.UsageError{Err: err}
		}
		if err != nil {
			return SetupReport{}, err
		}
	}
	if err := client.Accepts(server); err != nil {
		return SetupReport{}, arguments.UsageError{Err: err}
	}
	service, err := s.Service(ctx)
	name := client.TokenName(s.Name, service)
	var plan Plan
	replaced := false
	if s.HTTP != "" {
		var known builtin.ListTokensOutput
		if err == nil {
			known, err = s.Tokens(ctx)
		}
		if plan, err = PlanHTTP(s.HTTP, s.Project || s.Print, known, err); err != nil {
			return SetupReport{}, err
		}
		server.URL = plan.URL
		replaced = slices.ContainsFunc(known.Tokens, func(t ferrule.Token) bool { return t.Name == name })
	}
	if s.Print {
		if s.HTTP != "" {
			server.Token = "TOKEN"
		}
		return printEntry(client, file, server)
	}
	return s.change(ctx, client, file, perm, server, plan, name, replaced)
}

// change changes the file, and makes the token of a plan.
func (s Setup) change(ctx context.Context, client setup.Client, file string, perm fs.FileMode, server setup.Server, plan Plan, name string, replaced bool) (SetupReport, error) {
	var token builtin.TokenOutput
	left := false
	edit := func(doc []byte) ([]byte, error) { return client.Add(doc, server) }
	if s.Remove {
		edit = func(doc []byte) ([]byte, error) {
			left = client.HasToken(doc, server.Name)
			return client.Remove(doc, server.Name)
		}
	}
	done, err := client.Change(file, perm, func(doc []byte) ([]byte, error) {
		after, err := edit(doc)
		if err == nil && plan.Token { // it is made only if the file can be changed
			if token, err = s.token(ctx, name, file); err != nil {
				return nil, err
			}
			server.Token = token.Secret
			after, err = edit(doc)
		}
		if err != nil {
			err = arguments.UsageError{Err: fmt.Errorf("%s: %w; nothing was changed. Run `ferrule setup %s --print` for the entry to add by hand", file, err, client.Name)}
		}
		return after, err
	})
	if err != nil {
		return SetupReport{}, err
	}
	out := map[string]any{"client": client.Name, "file": done.Path, "changed": done.Changed, "backup": done.Backup}
	text := done.Text(client, server.Name, s.Remove)
	switch {
	case plan.Token:
		out["token"], out["replaced"] = token.Token, replaced
		text += ClientToken(token, replaced)
	case plan.Without != "":
		text += plan.Without + "\n"
	case left:
		text += TokenLeft(name)
	}
	return SetupReport{text, out}, nil
}

// token makes a token for a client, or rotates the one that it has.
func (s Setup) token(ctx context.Context, name, file string) (builtin.TokenOutput, error) {
	if err := setup.Private(file); err != nil {
		return builtin.TokenOutput{}, err
	}
	return s.AddToken(ctx, builtin.AddTokenInput{Name: name, Rotate: true})
}

// printEntry returns the entry as a file without anything else.
func printEntry(client setup.Client, file string, server setup.Server) (SetupReport, error) {
	text, err := client.Add(nil, server)
	if err != nil {
		return SetupReport{}, err
	}
	return SetupReport{
		Text: fmt.Sprintf("Add this to %s:\n\n%s", file, text),
		JSON: map[string]string{"client": client.Name, "file": file, "text": string(text)},
	}, nil
}

// fill fills in the entry of a client.
func (s Setup) fill(ctx context.Context, server *setup.Server) (err error) {
	if s.HTTP == "" {
		if server.Args, err = s.Args(s.Flags); err == nil {
			err = s.fillService(ctx, server)
		}
		if err == nil {
			server.Command, err = setup.OwnCommand(s.Project)
		}
		return err
	}
	if u, err := url.Parse(s.HTTP); s.HTTP != setup.RunningURL && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("--http must be a URL such as %s, got %q", setup.URL, s.HTTP)
	}
	if len(s.Flags) > 0 {
		return errors.New("flags after -- are for `ferrule mcp`, which --http does not start")
	}
	server.URL = s.HTTP
	return nil
}

// fillService makes the client use the packaged service, if it runs: a second gateway would
// compete with it for the ports. Flags of the user, and a data directory, name another
// gateway. A project file is shared with machines that may have no service; there
// `ferrule mcp` decides when it starts.
func (s Setup) fillService(ctx context.Context, server *setup.Server) error {
	if s.Project || len(s.Flags) > 0 {
		return nil
	}
	use, err := s.Service(ctx)
	if use {
		server.Args = []string{"mcp", "--service"}
	}
	return err
}
