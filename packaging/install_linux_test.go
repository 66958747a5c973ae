package packaging_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestPackages installs the deb and the rpm with dpkg and rpm into root directories, and
// checks that both install the same files and that the program works. systemd does not
// run there: the test starts the service as the unit describes.
func TestPackages(t *testing.T) {
	dist(t)
	deb := installDeb(t, one(t, "ferrule_*_amd64.deb"))
	rpm := installRPM(t, one(t, "ferrule-*.x86_64.rpm"))
	t.Run("same files", func(t *testing.T) {
		inDeb, inRPM := deb.installed(t), rpm.installed(t)
		if !maps.Equal(inDeb, inRPM) {
			t.Errorf("the deb installs\n%s\nthe rpm installs\n%s", table(inDeb), table(inRPM))
		}
		if n := len(inDeb); n < 25 {
			t.Errorf("got %d files, want at least 25", n)
		}
	})
	for name, r := range map[string]root{"deb": deb, "rpm": rpm} {
		t.Run(name, func(t *testing.T) {
			t.Run("version", r.testVersion)
			t.Run("service", r.testService)
		})
	}
	t.Run("unit", deb.testUnit)
	t.Run("rules", deb.testRules)
	t.Run("manual pages", deb.testManual)
	t.Run("completions", deb.testCompletions)
	t.Run("conffile", deb.testConffile)
}

// TestOtherPackages checks packages for other architectures: they have the same files,
// and the program from the archive.
func TestOtherPackages(t *testing.T) {
	dist(t)
	want := namesInDeb(t, one(t, "ferrule_*_amd64.deb"))
	for _, p := range platforms {
		if p.deb == "" {
			continue
		}
		t.Run(p.arch, func(t *testing.T) {
			deb, rpm := one(t, "ferrule_*_"+p.deb+".deb"), one(t, "ferrule-*."+p.rpm+".rpm")
			if arch := strings.TrimSpace(must(t, "", "dpkg-deb", "--field", deb, "Architecture")); arch != p.deb {
				t.Errorf("deb architecture is %s", arch)
			}
			if arch := must(t, "", "rpm", "--query", "--nosignature", "--queryformat", "%{ARCH}", "--package", rpm); arch != p.rpm {
				t.Errorf("rpm architecture is %s", arch)
			}
			if got := namesInDeb(t, deb); !slices.Equal(got, want) {
				t.Errorf("the deb has\n%q\nthe amd64 deb has\n%q", got, want)
			}
			names := strings.Fields(must(t, "", "rpm", "--query", "--nosignature", "--list", "--package", rpm))
			for i := range names {
				names[i] = debName(names[i])
			}
			slices.Sort(names)
			if !slices.Equal(names, want) {
				t.Errorf("the rpm has\n%q\nthe amd64 deb has\n%q", names, want)
			}
			dir := t.TempDir()
			must(t, "", "dpkg-deb", "--extract", deb, dir)
			if read(t, dir+"/usr/bin/ferrule") != string(unpack(t, p.archive(t))["ferrule"].data) {
				t.Error("the program differs from the one in the archive")
			}
		})
	}
}

// namesInDeb returns the files of a deb, and the folders that belong to ferrule.
func namesInDeb(t *testing.T, deb string) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(must(t, "", "dpkg-deb", "--contents", deb)) {
		fields := strings.Fields(line)
		name := strings.TrimPrefix(fields[len(fields)-1], ".")
		if !strings.HasSuffix(name, "/") || strings.Contains(name, "/ferrule/") && !strings.Contains(name, "/doc/") {
			names = append(names, strings.TrimSuffix(name, "/"))
		}
	}
	slices.Sort(names)
	return names
}

// debName returns the name that a file of the rpm has in the deb.
func debName(name string) string {
	return strings.Replace(name, "/zsh/site-functions/", "/zsh/vendor-completions/", 1)
}

func installDeb(t *testing.T, deb string) root {
	t.Helper()
	r := newRoot(t, "sh", "chgrp", "systemd-sysusers")
	r.linkBin(t)
	r.write(t, "/var/lib/dpkg/status", "")
	for _, dir := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(r.path("/var/lib/dpkg/"+dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	must(t, "", "dpkg", "--root="+string(r), "--log=/dev/null", "--force-bad-path", "--install", deb)
	return r
}

// installRPM ignores dependencies, because the root directory has no rpm database.
func installRPM(t *testing.T, rpm string) root {
	t.Helper()
	r := newRoot(t, "sh", "chgrp", "systemd-sysusers")
	r.linkBin(t)
	if out := must(t, "", "rpm", "--root", string(r), "--install", "--nodeps", "--nosignature", rpm); strings.Contains(out, "warning") {
		t.Errorf("rpm printed %s", out)
	}
	return r
}

// linkBin links /bin to /usr/bin, for scripts that start with #!/bin/sh.
func (r root) linkBin(t *testing.T) {
	t.Helper()
	if err := os.Symlink("usr/bin", r.path("/bin")); err != nil {
		t.Fatal(err)
	}
}

// preexisting matches files that are in the root directory before the installation.
var preexisting = regexp.MustCompile(`^/usr/bin/(sh|chgrp|systemd-sysusers)$|\.so|^/etc/(passwd|group|shadow|gshadow|\.pwd\.lock)-?$`)

// installed returns the mode, owner and checksum of each file that a package installed.
func (r root) installed(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, top := range []string{"/usr", "/etc"} {
		err := filepath.WalkDir(r.path(top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(path, string(r))
			if preexisting.MatchString(name) || d.IsDir() && !strings.HasPrefix(name, "/etc/ferrule") {
				return nil
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			stat := info.Sys().(*syscall.Stat_t)
			group := fmt.Sprint(stat.Gid)
			if stat.Gid == r.id(t, "/etc/group", "ferrule", 2) {
				group = "ferrule"
			}
			all[debName(name)] = fmt.Sprint(info.Mode(), " ", stat.Uid, " ", group)
			if info.Mode().IsRegular() {
				all[debName(name)] += " " + digest(t, path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func table(m map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s %s\n", name, m[name])
	}
	return b.String()
}

func (r root) testVersion(t *testing.T) {
	out, err := r.command(nil, nil, "/usr/bin/ferrule", "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "ferrule "+released(t)+" (") {
		t.Errorf("got %s, %v", out, err)
	}
}

// testService runs the command of the unit as the user of the unit.
func (r root) testService(t *testing.T) {
	unit := read(t, r.path("/usr/lib/systemd/system/ferrule.service"))
	setting := func(key string) string {
		m := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindStringSubmatch(unit)
		if m == nil {
			t.Fatalf("the unit has no %s", key)
		}
		return m[1]
	}
	user := &syscall.Credential{
		Uid:    r.id(t, "/etc/passwd", setting("User"), 2),
		Gid:    r.id(t, "/etc/group", setting("Group"), 2),
		Groups: []uint32{r.id(t, "/etc/group", setting("SupplementaryGroups"), 2)},
	}
	if user.Uid == 0 || user.Gid == 0 {
		t.Fatalf("user is %+v, want an unprivileged one", user)
	}
	if members := read(t, r.path("/etc/group")); !regexp.MustCompile(`(?m)^dialout:.*:ferrule$`).MatchString(members) {
		t.Errorf("user ferrule is not in group dialout:\n%s", members)
	}
	data := r.path("/var/lib/" + setting("StateDirectory"))
	if err := os.MkdirAll(filepath.Dir(data), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(data, int(user.Uid), int(user.Gid)); err != nil {
		t.Fatal(err)
	}
	runtime := r.path("/run/" + setting("RuntimeDirectory"))
	if err := os.MkdirAll(runtime, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(runtime, 0o750), os.Chown(runtime, int(user.Uid), int(user.Gid))); err != nil {
		t.Fatal(err)
	}
	start := strings.Fields(setting("ExecStart"))
	r.gateway(t, user, []string{"FERRULE_LISTEN=127.0.0.1:0"}, start...)

	out, err := r.command(user, []string{"FERRULE_LISTEN=nowhere"}, start...).CombinedOutput()
	if err == nil || fmt.Sprint(err) != "exit status "+setting("RestartPreventExitStatus") {
		t.Errorf("with an invalid config: got %v\n%s", err, out)
	}
	stranger := &syscall.Credential{Uid: 12345, Gid: 12345}
	if out, err := r.command(stranger, nil, start...).CombinedOutput(); err == nil || !strings.Contains(string(out), "permission denied") {
		t.Errorf("another user can read the config: %v\n%s", err, out)
	}
}

// testUnit checks the units with systemd-analyze and logs their exposure levels. It does not
// check that the service can open a port: systemd does not run here.
func (r root) testUnit(t *testing.T) {
	for _, name := range []string{"ferrule.service", "ferrule-board.service"} {
		t.Run(name, func(t *testing.T) { r.testUnitOf(t, name) })
	}
}

func (r root) testUnitOf(t *testing.T, name string) {
	unit := r.path("/usr/lib/systemd/system/" + name)
	for _, page := range regexp.MustCompile(`man:([a-z.-]+)\(([15])\)`).FindAllStringSubmatch(read(t, unit), -1) {
		read(t, r.path("/usr/share/man/man"+page[2]+"/"+page[1]+"."+page[2]+".gz"))
	}
	// The program is in the root directory, not on this machine.
	here := filepath.Join(t.TempDir(), name)
	text := strings.Replace(read(t, unit), "ExecStart=/usr/bin/ferrule", "ExecStart="+r.path("/usr/bin/ferrule"), 1)
	if err := os.WriteFile(here, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := must(t, "", "systemd-analyze", "verify", "--man=no", here); out != "" {
		t.Errorf("systemd-analyze printed\n%s", out)
	}
	t.Log(lastLine(must(t, "", "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", here)))
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// testManual checks the man pages with mandoc.
func (r root) testManual(t *testing.T) {
	pages, err := filepath.Glob(r.path("/usr/share/man/man[15]/*.gz"))
	if err != nil || len(pages) < 15 {
		t.Fatalf("got %d pages, want at least 15; %v", len(pages), err)
	}
	dir := t.TempDir()
	for i, page := range pages {
		plain := filepath.Join(dir, strings.TrimSuffix(filepath.Base(page), ".gz"))
		if err := os.WriteFile(plain, []byte(must(t, "", "gzip", "-dc", page)), 0o644); err != nil {
			t.Fatal(err)
		}
		pages[i] = plain
	}
	if out, err := run(t, "", "mandoc", append([]string{"-Tlint", "-Wwarning"}, pages...)...); err != nil || out != "" {
		t.Errorf("mandoc: %v\n%s", err, out)
	}
	if out := must(t, "", "mandoc", "-Tutf8", filepath.Join(dir, "ferrule-up.1")); !strings.Contains(out, "Run the gateway until it is interrupted") {
		t.Errorf("ferrule-up.1 is\n%s", out)
	}
}

// testCompletions checks the completion files with the installed shells, and completes a
// word with bash.
func (r root) testCompletions(t *testing.T) {
	file := r.path("/usr/share/bash-completion/completions/ferrule")
	script := `set -eu; source "$0"; complete -p ferrule
COMP_WORDS=(ferrule audit ver) COMP_CWORD=2 COMP_LINE="ferrule audit ver" COMP_POINT=17 COMP_TYPE=9
_get_comp_words_by_ref() { cur=ver prev=audit words=(ferrule audit ver) cword=2; }
__ltrim_colon_completions() { :; }
compopt() { :; }
__start_ferrule; echo "${COMPREPLY[@]}"`
	cmd := exec.Command("bash", "-c", script, file)
	cmd.Env = append(os.Environ(), "PATH="+r.path("/usr/bin")+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "-F __start_ferrule ferrule\nverify") {
		t.Errorf("bash: %v\n%s", err, out)
	}
	for shell, file := range map[string]string{
		"zsh": "/usr/share/zsh/vendor-completions/_ferrule", "fish": "/usr/share/fish/vendor_completions.d/ferrule.fish",
	} {
		read(t, r.path(file))
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("%s is not installed: its completion file was not checked", shell)
			continue
		}
		if out, err := run(t, "", shell, "-n", r.path(file)); err != nil || out != "" {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}

// testConffile checks that an edited config survives an upgrade and the removal of the
// package, and that the journal survives a purge.
func (r root) testConffile(t *testing.T) {
	const name = "/etc/ferrule/ferrule.yaml"
	if out := must(t, "", "dpkg-query", "--admindir="+r.path("/var/lib/dpkg"), "--show", "--showformat=${Conffiles}", "ferrule"); !strings.Contains(out, name) {
		t.Errorf("conffiles are %q", out)
	}
	edited := "listen: 127.0.0.1:4444\n"
	if err := os.WriteFile(r.path(name), []byte(edited), 0o640); err != nil {
		t.Fatal(err)
	}
	dpkg := []string{"--root=" + string(r), "--log=/dev/null", "--force-bad-path"}
	must(t, "", "dpkg", append(dpkg, "--force-confdef", "--install", one(t, "ferrule_*_amd64.deb"))...)
	must(t, "", "dpkg", append(dpkg, "--remove", "ferrule")...)
	if got := read(t, r.path(name)); got != edited {
		t.Errorf("the config is %s", got)
	}
	if _, err := os.Stat(r.path("/usr/bin/ferrule")); err == nil {
		t.Error("the program is still there")
	}
	must(t, "", "dpkg", append(dpkg, "--purge", "ferrule")...)
	if _, err := os.Stat(r.path(name)); err == nil {
		t.Error("the config is still there")
	}
	if kept, err := os.ReadDir(r.path("/var/lib/ferrule")); err != nil || len(kept) == 0 {
		t.Errorf("the data directory has %v, %v", kept, err)
	}
}
