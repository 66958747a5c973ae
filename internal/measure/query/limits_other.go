//go:build !linux

package query

// limitProcess does nothing on this system: SQLite's own limits and the timeout remain.
func limitProcess() error { return nil }
