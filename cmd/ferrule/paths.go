package main

import (
	"os"
	"path/filepath"
	"runtime"
)

// defaultData is the data directory where none is named: where the system wants
// the data of a user. It is empty for a user without a home.
func defaultData() string {
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

// defaultConfig is the file that is read if it exists: ferrule.yaml where the
// system wants configuration.
func defaultConfig() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "ferrule", "ferrule.yaml")
}
