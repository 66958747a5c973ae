package setup

import (
	"os"
	"runtime"
	"strings"
)

// Place is the environment that determines where config files are.
type Place struct {
	OS     string // a value of runtime.GOOS
	Home   string
	Getenv func(string) string
}

// Here returns the Place of this process.
func Here() (Place, error) {
	home, err := os.UserHomeDir()
	return Place{OS: runtime.GOOS, Home: home, Getenv: os.Getenv}, err
}

// Files returns the candidate config files of a client. Those of a project are relative
// to it, and none if the client has no project config.
func (c Client) Files(p Place, project bool) []string {
	if !project {
		return c.user(p)
	}
	var files []string
	for _, file := range c.project {
		files = append(files, p.join("", strings.Split(file, "/")...))
	}
	return files
}

// join joins path elements with the separator of p.OS.
func (p Place) join(dir string, parts ...string) string {
	separator := "/"
	if p.OS == "windows" {
		separator = `\`
	}
	if dir != "" {
		parts = append([]string{strings.TrimRight(dir, separator)}, parts...)
	}
	return strings.Join(parts, separator)
}

func (p Place) env(name, otherwise string) string {
	if dir := p.Getenv(name); dir != "" {
		return dir
	}
	return otherwise
}

// applications returns the directory for the data of desktop applications.
func (p Place) applications() string {
	switch p.OS {
	case "windows":
		return p.env("APPDATA", p.join(p.Home, "AppData", "Roaming"))
	case "darwin":
		return p.join(p.Home, "Library", "Application Support")
	}
	return p.xdg()
}

func (p Place) xdg() string { return p.env("XDG_CONFIG_HOME", p.join(p.Home, ".config")) }

func claudeCode(p Place) []string {
	return []string{p.join(p.env("CLAUDE_CONFIG_DIR", p.Home), ".claude.json")}
}

// claudeDesktop returns a second path on Windows: the packaged app has its own directory
// in place of %APPDATA%.
func claudeDesktop(p Place) []string {
	const name = "claude_desktop_config.json"
	files := []string{p.join(p.applications(), "Claude", name)}
	if p.OS == "windows" {
		local := p.env("LOCALAPPDATA", p.join(p.Home, "AppData", "Local"))
		packaged := p.join(local, "Packages", "Claude_pzs8sxrjxfjjc", "LocalCache", "Roaming", "Claude", name)
		files = append([]string{packaged}, files...)
	}
	return files
}

func codex(p Place) []string {
	return []string{p.join(p.env("CODEX_HOME", p.join(p.Home, ".codex")), "config.toml")}
}

func gemini(p Place) []string {
	return []string{p.join(p.env("GEMINI_CLI_HOME", p.Home), ".gemini", "settings.json")}
}

func cursor(p Place) []string { return []string{p.join(p.Home, ".cursor", "mcp.json")} }

func vscode(p Place) []string { return []string{p.join(p.applications(), "Code", "User", "mcp.json")} }

// opencode looks in ~/.config on every system.
func opencode(p Place) []string {
	dir := p.join(p.xdg(), "opencode")
	return []string{p.join(dir, "opencode.jsonc"), p.join(dir, "opencode.json")}
}

func zed(p Place) []string {
	switch p.OS {
	case "windows":
		return []string{p.join(p.applications(), "Zed", "settings.json")}
	case "darwin":
		return []string{p.join(p.Home, ".config", "zed", "settings.json")}
	}
	return []string{p.join(p.xdg(), "zed", "settings.json")}
}
