package gateway

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/console/panel"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// panels returns the documents that chat programs draw beside results of built-in tools.
func panels() []server.Panel {
	return []server.Panel{
		{Name: "device", Title: "Device", Text: "State, values and controls of a device.", HTML: panel.Device(), Tools: []string{builtin.ShowDeviceTool}},
		{Name: "history", Title: "History", Text: "Curves of what a device measured.", HTML: panel.History(), Tools: []string{"history"}},
		{Name: "approval", Title: "Approval", Text: "Calls that wait for the approval of a person.", HTML: panel.Approval(), Tools: []string{builtin.ApprovalStatusTool}},
	}
}

// approvalsURL returns the page on which people answer requests, or "" if there is none.
func (g *Gateway) approvalsURL() string {
	url, err := g.loginURL()
	if err != nil {
		return ""
	}
	return url + "/approvals"
}

// offersOn implements builtin.OffersOn.
func (g *Gateway) offersOn(who ferrule.Principal, device string) ([]ferrule.Offer, string) {
	return g.Catalog.As(who).OffersOn(device)
}

// handleLater is the pipeline, for tools that are built before it.
func (g *Gateway) handleLater(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	return g.Pipeline.Handle(ctx, call)
}
