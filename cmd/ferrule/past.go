package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/measure/plot"
	"github.com/ferrulehq/ferrule/internal/measure/query"
)

// pastTools are the tools that tell what was measured, if that is kept.
func (g *gateway) pastTools(data string) []builtin.Tool {
	if g.history == nil {
		return nil
	}
	calls := diary{data: data}
	if all := g.bus.Journals(); all != nil {
		calls.others = all.Read
	}
	tools := []builtin.Tool{
		builtin.Latest(g.fleet, g.history),
		builtin.History(g.fleet, g.history),
		builtin.Plot(g.fleet, g.history, calls, draw),
	}
	self, err := query.Self()
	if err != nil { // where there is no /proc, a program cannot start itself
		g.log.Debug("questions in SQL cannot be answered here", "err", err)
		return tools
	}
	return append(tools, builtin.SQL(query.New(g.history.Path(), self, "ferrule", askCommand), query.Tables))
}

// draw draws a picture as PNG.
func draw(p builtin.Chart) ([]byte, error) { return plot.Draw(plot.Chart(p)) }

// askCommand is the command that answers a question in SQL. The gateway runs it.
const askCommand = "answer-sql"

func (a *app) askCommand() *cobra.Command {
	return &cobra.Command{
		Use:    askCommand,
		Short:  "Answer a question in SQL; the gateway runs it",
		Hidden: true,
		Args:   exactly(0),
		RunE:   func(*cobra.Command, []string) error { return query.Serve(os.Stdin, a.stdout) },
	}
}
