package builtin

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Asker answers questions in SQL about what was measured: columns, and rows that are JSON
// arrays, so many at most, or as many as usual if that is 0.
type Asker interface {
	Ask(ctx context.Context, query string, rows int) (columns []string, answer []json.RawMessage, more bool, err error)
}

// SQLInput is the arguments of sql.
type SQLInput struct {
	Query string `json:"query" jsonschema:"one SELECT of SQLite"`
	Rows  int    `json:"rows,omitempty" jsonschema:"at most 1000; 100 unless said"`
}

// SQLOutput is the result of sql.
type SQLOutput struct {
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"`
	More    bool     `json:"more,omitempty" jsonschema:"there are more rows"`
}

// SQL is the tool that answers questions in SQL. Tables tells what can be asked about.
func SQL(asker Asker, tables string) Tool {
	text := "Ask in SQL, read only, what this node has measured. Tables: " + tables + ". Times are seconds since 1970."
	return Typed("sql", text, ferrule.Reads, func(ctx context.Context, _ *ferrule.Call, in SQLInput) (SQLOutput, error) {
		columns, answer, more, err := asker.Ask(ctx, in.Query, in.Rows)
		if err != nil {
			return SQLOutput{}, err
		}
		out := SQLOutput{Columns: columns, Rows: make([][]any, len(answer)), More: more}
		for i, row := range answer {
			dec := json.NewDecoder(bytes.NewReader(row))
			dec.UseNumber() // large integers keep their digits
			if err := dec.Decode(&out.Rows[i]); err != nil {
				return SQLOutput{}, ferrule.Errorf(ferrule.Internal, "a row cannot be read: %w", err)
			}
		}
		return out, nil
	})
}
