package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/server"
)

// gallery is the command gallery: both parts in one process. It prints the address of
// each and ends with its standard input. With the argument changing its tools are not
// declared read-only.
func gallery() {
	ends := make(chan error, 2)
	part := func(name string, serve func(ln net.Listener) error) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s=http://%s/mcp\n", name, ln.Addr())
		go func() { ends <- serve(ln) }()
	}
	part("thing", func(ln net.Listener) error {
		return galleryThing(len(os.Args) > 1).Serve(context.Background(), ln)
	})
	part("server", func(ln net.Listener) error { return http.Serve(ln, galleryServer()) })
	tillEnd(ends)
}

// tillEnd waits until standard input ends. If something else ends first, it fails.
func tillEnd(ends <-chan error) {
	in, _ := server.Standard()
	go func() { panic(<-ends) }()
	for lines := bufio.NewScanner(in); lines.Scan(); {
	}
}

// proxy is the command proxy NAME=URL…: for each URL, a server of the bare SDK that
// calls a client of the bare SDK. It prints its address and serves each at its name.
func proxy() {
	mux := http.NewServeMux()
	for _, arg := range os.Args[1:] {
		name, url, _ := strings.Cut(arg, "=")
		server, err := proxied(context.Background(), url)
		if err != nil {
			panic(err)
		}
		mux.Handle("/"+name, bothMCPVersions(func(*http.Request) *mcp.Server { return server }))
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("http://%s\n", ln.Addr())
	ends := make(chan error, 1)
	go func() { ends <- http.Serve(ln, mux) }()
	tillEnd(ends)
}

// proxied returns a server that forwards all tools, resources and prompts of another.
func proxied(ctx context.Context, url string) (*mcp.Server, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "proxy", Version: "1"}, nil)
	there, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		return nil, err
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "proxy", Version: "1"}, &mcp.ServerOptions{
		CompletionHandler: func(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return there.Complete(ctx, &mcp.CompleteParams{Ref: req.Params.Ref, Argument: req.Params.Argument, Context: req.Params.Context})
		},
	})
	var wrong error
	for tool, err := range there.Tools(ctx, nil) {
		if wrong = errors.Join(wrong, err); err != nil {
			break
		}
		server.AddTool(tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return there.CallTool(ctx, &mcp.CallToolParams{Name: req.Params.Name, Arguments: req.Params.Arguments})
		})
	}
	read := func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return there.ReadResource(ctx, &mcp.ReadResourceParams{URI: req.Params.URI})
	}
	able := there.InitializeResult().Capabilities
	if able.Resources != nil {
		for resource, err := range there.Resources(ctx, nil) {
			if wrong = errors.Join(wrong, err); err != nil {
				break
			}
			server.AddResource(resource, read)
		}
		for template, err := range there.ResourceTemplates(ctx, nil) {
			if wrong = errors.Join(wrong, err); err != nil {
				break
			}
			server.AddResourceTemplate(template, read)
		}
	}
	if able.Prompts != nil {
		for prompt, err := range there.Prompts(ctx, nil) {
			if wrong = errors.Join(wrong, err); err != nil {
				break
			}
			server.AddPrompt(prompt, func(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
				return there.GetPrompt(ctx, &mcp.GetPromptParams{Name: req.Params.Name, Arguments: req.Params.Arguments})
			})
		}
	}
	return server, wrong
}
