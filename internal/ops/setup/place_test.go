package setup

import (
	"slices"
	"testing"
)

// TestPlaces checks the paths of config files on every system.
func TestPlaces(t *testing.T) {
	linux := Place{OS: "linux", Home: "/home/ada"}
	mac := Place{OS: "darwin", Home: "/Users/ada"}
	windows := Place{OS: "windows", Home: `C:\Users\ada`}
	roaming := map[string]string{"APPDATA": `D:\Roaming\`, "LOCALAPPDATA": `D:\Local`}
	xdg := map[string]string{"XDG_CONFIG_HOME": "/etc/ada/"}
	const packaged = `\Packages\Claude_pzs8sxrjxfjjc\LocalCache\Roaming\Claude\claude_desktop_config.json`
	for _, test := range []struct {
		client string
		place  Place
		env    map[string]string
		want   []string
	}{
		{"claude-code", linux, xdg, []string{"/home/ada/.claude.json"}},
		{"claude-code", mac, nil, []string{"/Users/ada/.claude.json"}},
		{"claude-code", windows, roaming, []string{`C:\Users\ada\.claude.json`}},
		{"claude-code", linux, map[string]string{"CLAUDE_CONFIG_DIR": "/srv/claude"}, []string{"/srv/claude/.claude.json"}},
		{"claude-desktop", linux, nil, []string{"/home/ada/.config/Claude/claude_desktop_config.json"}},
		{"claude-desktop", mac, xdg, []string{"/Users/ada/Library/Application Support/Claude/claude_desktop_config.json"}},
		{"claude-desktop", windows, roaming, []string{`D:\Local` + packaged, `D:\Roaming\Claude\claude_desktop_config.json`}},
		{"claude-desktop", windows, nil, []string{`C:\Users\ada\AppData\Local` + packaged, `C:\Users\ada\AppData\Roaming\Claude\claude_desktop_config.json`}},
		{"codex", linux, xdg, []string{"/home/ada/.codex/config.toml"}},
		{"codex", windows, roaming, []string{`C:\Users\ada\.codex\config.toml`}},
		{"codex", mac, map[string]string{"CODEX_HOME": "/srv/codex"}, []string{"/srv/codex/config.toml"}},
		{"gemini", linux, xdg, []string{"/home/ada/.gemini/settings.json"}},
		{"gemini", windows, roaming, []string{`C:\Users\ada\.gemini\settings.json`}},
		{"gemini", linux, map[string]string{"GEMINI_CLI_HOME": "/srv"}, []string{"/srv/.gemini/settings.json"}},
		{"cursor", mac, nil, []string{"/Users/ada/.cursor/mcp.json"}},
		{"cursor", windows, roaming, []string{`C:\Users\ada\.cursor\mcp.json`}},
		{"vscode", linux, nil, []string{"/home/ada/.config/Code/User/mcp.json"}},
		{"vscode", linux, xdg, []string{"/etc/ada/Code/User/mcp.json"}},
		{"vscode", mac, xdg, []string{"/Users/ada/Library/Application Support/Code/User/mcp.json"}},
		{"vscode", windows, roaming, []string{`D:\Roaming\Code\User\mcp.json`}},
		{"opencode", linux, xdg, []string{"/etc/ada/opencode/opencode.jsonc", "/etc/ada/opencode/opencode.json"}},
		{"opencode", mac, nil, []string{"/Users/ada/.config/opencode/opencode.jsonc", "/Users/ada/.config/opencode/opencode.json"}},
		{"opencode", windows, roaming, []string{`C:\Users\ada\.config\opencode\opencode.jsonc`, `C:\Users\ada\.config\opencode\opencode.json`}},
		{"zed", linux, xdg, []string{"/etc/ada/zed/settings.json"}},
		{"zed", mac, xdg, []string{"/Users/ada/.config/zed/settings.json"}},
		{"zed", windows, roaming, []string{`D:\Roaming\Zed\settings.json`}},
	} {
		c, err := Find(test.client)
		if err != nil {
			t.Fatal(err)
		}
		test.place.Getenv = func(name string) string { return test.env[name] }
		if got := c.Files(test.place, false); !slices.Equal(got, test.want) {
			t.Errorf("%s on %s: got %q, want %q", test.client, test.place.OS, got, test.want)
		}
	}
	c, _ := Find("vscode")
	if got := c.Files(windows, true); !slices.Equal(got, []string{`.vscode\mcp.json`}) {
		t.Error(got)
	}
	c, _ = Find("claude-desktop")
	if got := c.Files(linux, true); len(got) != 0 {
		t.Error(got)
	}
}
