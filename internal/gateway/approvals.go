package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/cluster"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/approval"
)

// openApprovals reads the calls that wait for approval.
func (g *Gateway) openApprovals() error {
	cfg, err := g.parts.Config.ApprovalConfig()
	if err != nil {
		return err
	}
	node := ""
	if g.Cluster.State().Mode != cluster.Embedded {
		node = g.node()
	}
	g.Approvals, err = approval.Open(approval.Parts{
		Config: cfg, Dir: g.parts.Data, Node: node, Journal: g.Journal, Devices: g.Fleet, Version: g.Policy.Version,
		Decide: func(call *ferrule.Call) ferrule.Verdict {
			if why := g.lockedOut(call); why != "" {
				return ferrule.Verdict{Ruling: ferrule.Forbid, Reason: why}
			}
			return g.Policy.Decide(call)
		},
		Revoked: g.revoked,
		Stopped: func(dev *ferrule.Device) string { return g.Stop.Stopped().For(dev) },
		Event:   g.Cluster.AddDeviceEvent, Page: g.approvalsURL, Log: g.parts.Log,
	})
	return err
}

// revoked returns why the token or login of a caller is not accepted any more; empty if it
// is, or if only the node that vouches for the caller knows. A token that has expired can be
// rotated, so it is not revoked.
func (g *Gateway) revoked(who ferrule.Principal, via string) string {
	var ended, known bool
	what := "login"
	switch {
	case who.Auth != ferrule.AuthToken && who.Auth != ferrule.AuthOAuth && who.Auth != ferrule.AuthLogin:
		return ""
	case who.TokenID == "": // stored by an older version, or from a node that runs one
		return "it is not known which token or login of " + ferrule.Clean(who.String(), ferrule.MaxWord) + " it belongs to"
	case who.Auth == ferrule.AuthLogin:
		ended, known = g.People.Ended(who.Name, who.TokenID)
	case who.Auth == ferrule.AuthOAuth && g.OAuth != nil:
		ended, known = g.OAuth.Ended(who.TokenID)
	case who.Auth == ferrule.AuthOAuth:
		ended = true
	case who.HasConfigToken():
		what = "token"
		ended = !slices.ContainsFunc(g.tokens.Principals(), func(p ferrule.Principal) bool { return p.Name == who.Name && p.TokenID == who.TokenID })
	default:
		what = "token"
		ended, known = g.Tokens.Ended(who.Name, who.TokenID)
	}
	if ended && (known || via == "") { // a node may not know yet what is new on another one
		return "the " + what + " of " + ferrule.Clean(who.String(), ferrule.MaxWord) + " was revoked"
	}
	return ""
}

// approvals are the requests of all nodes.
type approvals struct{ *Gateway }

// listTime limits how long another node may take to list its requests.
const listTime = 3 * time.Second

// List implements builtin.Approvals. A call from another node gets the requests of this
// one.
func (a approvals) List(ctx context.Context, call *ferrule.Call) (all []ferrule.Approval, silent []string) {
	all = a.Approvals.List()
	if call.Via != "" {
		return all, nil
	}
	others, silent := a.others(ctx, call)
	all = append(all, others...)
	slices.SortFunc(all, func(x, y ferrule.Approval) int {
		return cmp.Or(x.Created.Compare(y.Created), strings.Compare(x.ID, y.ID))
	})
	return all, silent
}

// others returns the requests of the other nodes, and the nodes that did not answer.
func (a approvals) others(ctx context.Context, call *ferrule.Call) (all []ferrule.Approval, silent []string) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, node := range a.Cluster.State().Nodes {
		wg.Go(func() {
			there := *call
			there.MeterState = nil // it counts the time of one call after the other
			result, err := a.Cluster.Forward(ctx, node, &there)
			var out builtin.ListApprovalsOutput
			if err == nil {
				err = json.Unmarshal(result.Value, &out)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, node)
				return
			}
			all = append(all, listedBy(node, out.Approvals)...)
		})
	}
	wg.Wait()
	slices.Sort(silent)
	return all, silent
}

// listedBy returns the requests of another node. One with the ID of a request elsewhere is
// dropped: a person who allows what it shows would allow the other one.
func listedBy(node string, listed []ferrule.Approval) (all []ferrule.Approval) {
	for _, request := range listed {
		if _, at := approval.SplitID(request.ID); at == node {
			all = append(all, bounded(request))
		}
	}
	return all
}

// bounded returns a request of another node whose texts are safe to show.
func bounded(a ferrule.Approval) ferrule.Approval {
	for _, text := range []*string{&a.ID, &a.Node, &a.Caller, &a.TokenID, &a.User, &a.Program, &a.Via, &a.Device, &a.Model, &a.Tool, &a.Now, &a.Reason, &a.Rule, &a.By, &a.DeviceText} {
		*text = ferrule.Clean(*text, ferrule.MaxText)
	}
	return a
}

// Answer implements builtin.Approvals.
func (a approvals) Answer(who ferrule.Principal, in builtin.AnswerApprovalInput) (ferrule.Approval, error) {
	id, _ := approval.SplitID(in.ID)
	return a.Approvals.Answer(who, id, approval.Answer{Allow: in.Allow, For: time.Duration(in.For)})
}

// nodeOf returns the other node that a call concerns, or "" for this one, and the device if
// the call names one.
func (g *Gateway) nodeOf(call *ferrule.Call) (node, device string) {
	var in struct{ Device, ID string }
	if json.Unmarshal(call.Args, &in) != nil {
		return "", ""
	}
	if call.Tool != answerTool {
		return g.otherNode(in.Device), in.Device
	}
	if _, node = approval.SplitID(in.ID); node == g.Cluster.State().Node {
		return "", ""
	}
	return node, ""
}

// answerTool is the tool that answers a request for approval. listTool lists them; each
// node asks the others itself.
const (
	answerTool = "answer_approval"
	listTool   = "list_approvals"
)
