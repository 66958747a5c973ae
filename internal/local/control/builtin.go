package control

import (
	"context"
	"encoding/json"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

// CallBuiltin calls one of the gateway's own tools as the current user and decodes its
// value.
func CallBuiltin[Out any](ctx context.Context, client *Client, tool string, in any) (out Out, err error) {
	result, err := client.Builtin(ctx, tool, in)
	if err != nil {
		return out, err
	}
	err = json.Unmarshal(result.Value, &out)
	return out, err
}

// Builtin calls one of the gateway's own tools as the current user.
func (c *Client) Builtin(ctx context.Context, tool string, in any) (*ferrule.Result, error) {
	args, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	return c.Handle(ctx, &ferrule.Call{Principal: User(), Device: ferrule.GatewayID, Tool: tool, Args: args})
}

// User returns the person who runs this process.
func User() ferrule.Principal {
	return ferrule.Principal{Role: ferrule.Person, Name: identity.CurrentUser()}
}
