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
)

// copyConfig copies a folder of configuration. What has no variable, because an
// operator has no reason to change it, is changed here.
func (o Options) copyConfig(to, from string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.conf"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("there is no configuration in %s", from)
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
			// Servers with a cluster wait for a second one before they elect a leader.
			text = clusterBlock.ReplaceAll(text, nil)
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
