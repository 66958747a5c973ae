package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

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

// SQL returns the tool sql. Tables lists the tables and their columns. A query can read the
// values of all devices, so it is refused to a caller from whom any device is hidden.
func SQL(fleet Fleet, see See, runner QueryRunner, tables string) Tool {
	text := "Runs a read-only SQL query on the values measured by this node. Tables: " + tables + ". Times are seconds since 1970."
	return Typed("sql", text, ferrule.Reads, func(ctx context.Context, call *ferrule.Call, in SQLInput) (SQLOutput, error) {
		if hidesDevices(fleet, see.of(call)) {
			return SQLOutput{}, ferrule.Errorf(ferrule.Denied, "sql reads the values of all devices, and the policy hides some from you").
				WithHint("Use latest, history or plot for one device.")
		}
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

// maxHidden is how many devices are checked before a query.
const maxHidden = 10_000

// hidesDevices reports whether any device may be hidden.
func hidesDevices(fleet Fleet, seen ferrule.Visibility) bool {
	if seen.Shows == nil || seen.AllDevices {
		return false
	}
	all := fleet.Devices()
	return len(all) > maxHidden || slices.ContainsFunc(all, func(d *ferrule.Device) bool {
		_, manifest, _ := fleet.Lookup(d.ID)
		return !seen.Device(d, manifest)
	})
}
