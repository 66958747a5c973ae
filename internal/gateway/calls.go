package gateway

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/cluster"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
)

// buildCalls builds what finds calls in the journals, for the console.
func (g *Gateway) buildCalls() error {
	parts := audit.CallLogParts{
		Data: g.parts.Data, Lines: g.Journal.Lines,
		Warn: func(text string, err error) { g.parts.Log.Warn(text, "err", err) },
	}
	if s := g.Cluster.State(); s.Mode != cluster.Embedded {
		parts.Node = s.Node
	}
	if all := g.Cluster.Journals(); all != nil {
		parts.Others = all.Read
	}
	g.Calls = audit.NewCallLog(parts)
	return nil
}

// verifyJournals checks the journals of all nodes.
func (g *Gateway) verifyJournals(ctx context.Context) (audit.Verification, error) {
	parts := audit.Parts{Data: g.parts.Data, Nodes: journalCopies{g}, Warn: func(text string) { g.parts.Log.Warn(text) }}
	return audit.Verify(ctx, parts, audit.VerifyOptions{})
}

// journalCopies are the copies of the journals of all nodes.
type journalCopies struct{ *Gateway }

// Journal implements audit.Nodes.
func (g journalCopies) Journal(ctx context.Context, q ferrule.JournalQuery, fn func(ferrule.JournalLines) error) error {
	all := g.Cluster.Journals()
	if all == nil {
		return control.ErrSingleNode
	}
	return all.Read(ctx, q, fn)
}
