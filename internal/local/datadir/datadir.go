// Package datadir knows the data directory of a gateway: where it is, which files it
// holds, and which process owns it.
//
//	journal.log, devices.jsonl  written by the packages that own them
//	journal, journal.*          sealed segments, signed head and reserve of the journal
//	node.key                    private key that signs the journal
//	lock                        locked by the gateway that runs
//	next                        locked by the process that is about to be the gateway
//	node                        name of the node, if the gateway is part of a cluster
//	config                      path of the configuration file of the last gateway
//	history.db                  measurements
//	mcp.log                     log of `ferrule mcp`
//	tls                         certificates that `ferrule tls init` made
//
// One gateway works on a data directory at a time. Commands find the gateway by its
// data directory. The directory and everything in it belong to one user and are closed
// to others: Prepare sees to that at every start.
package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// The files that more than one package needs by name.
const (
	LockFile    = "lock"
	HistoryFile = "history.db"
	LogFile     = "mcp.log"
	// NodeFile holds the name of the node, for commands that run without the gateway.
	NodeFile = "node"

	configFile = "config"
	// policiesFile has the directory of the rules that were last in force.
	policiesFile = "policies"

	claimFile = "next"
)

// Default returns the data directory of this user, or "" if the user has no home.
func Default() string {
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "ferrule")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	switch runtime.GOOS {
	case "darwin":
		return filepath.Join(home, "Library", "Application Support", "ferrule")
	case "windows":
		if dir := os.Getenv("LocalAppData"); dir != "" {
			return filepath.Join(dir, "ferrule")
		}
	}
	return filepath.Join(home, ".local", "share", "ferrule")
}

// Node returns the name of the node that a data directory belongs to, or "" if its
// gateway is not part of a cluster.
func Node(dir string) string { return line(dir, NodeFile) }

// SetNode stores the name of the node. An empty name removes the file.
func SetNode(dir, name string) error { return setLine(dir, NodeFile, name) }

// Config returns the configuration file that the last gateway of a data directory read, or
// "" if it read none.
func Config(dir string) string { return line(dir, configFile) }

// SetConfig stores the path of the configuration file. An empty path removes it.
func SetConfig(dir, path string) error { return setLine(dir, configFile, path) }

// Policies returns the directory that the last gateway of a data directory read rules from,
// or "" if there were none.
func Policies(dir string) string { return line(dir, policiesFile) }

// SetPolicies stores the directory of rules. An empty path removes it.
func SetPolicies(dir, path string) error { return setLine(dir, policiesFile, path) }

// line returns the only line of a file, or "" if it cannot be read.
func line(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// setLine writes a file of one line, or removes it if the line is empty.
func setLine(dir, name, text string) error {
	path := filepath.Join(dir, name)
	if text != "" {
		return os.WriteFile(path, []byte(text+"\n"), 0o600)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// OpenLog opens the log of `ferrule mcp`, which several processes append to. A file
// over 1 MiB is renamed to mcp.log.old first.
func OpenLog(dir string) (*os.File, error) {
	const limit = 1 << 20
	if _, err := Prepare(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, LogFile)
	if info, err := os.Stat(path); err == nil && info.Size() > limit {
		os.Rename(path, path+".old") // other processes go on writing to the old file
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}
