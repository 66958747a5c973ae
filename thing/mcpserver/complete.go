package mcpserver

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Completer suggests values that begin with the typed text. Others are the values of
// other arguments. It is called in the lane, like a tool.
type Completer func(ctx context.Context, typed string, others map[string]string) []string

// maxSuggestions is MCP's limit of values.
const maxSuggestions = 100

// completers are the completers of prompts and templates.
type completers struct {
	mu  sync.Mutex
	all map[string]map[string]Completer // by prompt or template, and by argument
}

func newCompleters() *completers {
	return &completers{all: make(map[string]map[string]Completer)}
}

func (c *completers) set(of string, by map[string]Completer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[of] = by
}

func (c *completers) get(ref *mcp.CompleteReference, argument string) Completer {
	of := "prompt " + ref.Name
	if ref.Type == "ref/resource" {
		of = "uri " + ref.URI
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[of][argument]
}

// complete answers completion/complete. Without a completer there are no suggestions.
func (d *Device) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	values := []string{}
	if complete := d.completers.get(req.Params.Ref, req.Params.Argument.Name); complete != nil {
		var others map[string]string
		if req.Params.Context != nil {
			others = req.Params.Context.Arguments
		}
		err := d.inTurn(ctx, func(ctx context.Context) error {
			values = append(values, complete(ctx, req.Params.Argument.Value, others)...)
			return nil
		})
		if err != nil {
			return nil, requestError(err)
		}
	}
	total := len(values)
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{
		Values: values[:min(total, maxSuggestions)], Total: total, HasMore: total > maxSuggestions,
	}}, nil
}
