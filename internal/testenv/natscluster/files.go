package natscluster

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

var (
	domainLine   = regexp.MustCompile(`(?m)^  domain: hub$`)
	clusterBlock = regexp.MustCompile(`(?ms)^cluster \{$.*?^\}$`)
	tlsBlocks    = regexp.MustCompile(`(?m)^( *)tls \{\n(.*\n)+? *\}\n`)
)

// copyConfig copies a directory of configuration. It edits what has no variable, because
// an operator has no reason to change it.
func (o Options) copyConfig(to, from string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.conf"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no configuration in %s", from)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if o.Domain != "" {
			text = domainLine.ReplaceAll(text, []byte("  domain: "+o.Domain))
		}
		if o.Size == 1 {
			// With a cluster block, a single server waits for a second one to elect a leader.
			text = clusterBlock.ReplaceAll(text, nil)
		}
		if !o.encrypted() {
			text = tlsBlocks.ReplaceAll(text, nil)
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
