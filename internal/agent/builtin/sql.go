package builtin

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// QueryRunner runs SQL queries on measured values. Rows are JSON arrays; a limit of 0
// stands for the default.
type QueryRunner interface {
	Ask(ctx context.Context, query string, rows int) (columns []string, answer []json.RawMessage, more bool, err error)
}

// SQLInput has the arguments of sql.
type SQLInput struct {
	Query string `json:"query" jsonschema:"one SELECT statement of SQLite"`
	Rows  int    `json:"rows,omitempty" jsonschema:"maximum, default 100, limit 1000"`
}

// SQLOutput is the result of sql.
type SQLOutput struct {
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"`
	More    bool     `json:"more,omitempty" jsonschema:"there are more rows"`
}

// SQL returns the tool sql. Tables lists the tables and their columns.
func SQL(runner QueryRunner, tables string) Tool {
	text := "Runs a read-only SQL query on the values measured by this node. Tables: " + tables + ". Times are seconds since 1970."
	return Typed("sql", text, ferrule.Reads, func(ctx context.Context, _ *ferrule.Call, in SQLInput) (SQLOutput, error) {
		columns, answer, more, err := runner.Ask(ctx, in.Query, in.Rows)
		if err != nil {
			return SQLOutput{}, err
		}
		out := SQLOutput{Columns: columns, Rows: make([][]any, len(answer)), More: more}
		for i, row := range answer {
			dec := json.NewDecoder(bytes.NewReader(row))
			dec.UseNumber() // large integers keep their digits
			if err := dec.Decode(&out.Rows[i]); err != nil {
				return SQLOutput{}, ferrule.Errorf(ferrule.Internal, "decoding a row: %w", err)
			}
		}
		return out, nil
	})
}
