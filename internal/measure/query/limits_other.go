//go:build !linux

package query

// limitProcess does nothing here: SQLite's own bounds, and two seconds, have to do.
func limitProcess() error { return nil }
