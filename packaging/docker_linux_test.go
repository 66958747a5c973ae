package packaging_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// image is the result of a Dockerfile.
type image struct {
	files      root
	env        []string
	user       *syscall.Credential
	entrypoint []string
	cmd        []string
	exposed    string
}

// TestDockerfile interprets the Dockerfile without Docker. The first stage runs in a copy
// of the tree with this machine's Go. The second stage is an empty root directory, to
// which files are copied and in which the entry point is started. The test does not
// check that Docker accepts the syntax.
func TestDockerfile(t *testing.T) {
	dist(t)
	im := buildImage(t, read(t, "../Dockerfile"), map[string]string{"VERSION": released(t)})
	if im.user == nil || im.user.Uid == 0 || im.user.Gid == 0 {
		t.Fatalf("user is %+v, want an unprivileged one", im.user)
	}
	if im.exposed != "3377" || !strings.Contains(read(t, "../internal/ops/config/ferrule.yaml"), "\nlisten: 127.0.0.1:3377\n") {
		t.Errorf("EXPOSE %s is not the default port", im.exposed)
	}
	start := append(im.entrypoint, im.cmd...)
	im.files.gateway(t, im.user, append(im.env, "FERRULE_LISTEN=127.0.0.1:0"), start...)

	out, err := im.files.command(im.user, im.env, append(im.entrypoint, "version")...).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "ferrule "+released(t)+" (") {
		t.Errorf("version: %s, %v", out, err)
	}
	// docs/how-to/install.md: every caller needs a token.
	open := append(im.env, "FERRULE_LISTEN=0.0.0.0:0")
	if !im.files.gateway(t, im.user, open, start...) {
		t.Error("/mcp does not require a token")
	}
	file := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(read(t, "../docs/how-to/install.md"))[1]
	im.files.write(t, "/etc/ferrule/ferrule.yaml", file)
	if !im.files.gateway(t, im.user, open, start...) {
		t.Error("/mcp does not require a token")
	}

	program := im.files.path("/usr/bin/ferrule")
	if out, _ := run(t, "", "ldd", program); !strings.Contains(out, "not a dynamic executable") {
		t.Errorf("the program is dynamically linked:\n%s", out)
	}
	if read(t, program) != string(unpack(t, platforms[0].archive(t))["ferrule"].data) {
		t.Error("the program differs from the one in the archive")
	}
}

// buildImage runs a Dockerfile with two stages: one named build and one from scratch.
func buildImage(t *testing.T, text string, args map[string]string) image {
	t.Helper()
	tree := copyTree(t)
	im := image{files: root(t.TempDir())}
	var stage, workdir string
	text = regexp.MustCompile(`(?m)^#.*\n|\\\n`).ReplaceAllString(text, "")
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "":
		case "FROM":
			stage = rest
			goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))[1]
			compiler := regexp.MustCompile(`^golang:` + regexp.QuoteMeta(goVersion) + `\.\d+@sha256:[0-9a-f]{64} AS build$`)
			if rest != "scratch" && !compiler.MatchString(rest) {
				t.Fatalf("FROM %s", rest)
			}
		case "WORKDIR":
			workdir = rest
		case "ARG":
			if name, _, _ := strings.Cut(rest, "="); args[name] == "" {
				t.Fatalf("ARG %s", rest)
			}
		case "RUN":
			cmd := exec.Command("sh", "-ec", rest)
			cmd.Dir = tree
			cmd.Env = append(os.Environ(), "GOFLAGS=")
			for name, value := range args {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("RUN %s: %v\n%s", rest, err, out)
			}
		case "COPY":
			if stage == "scratch" {
				im.copy(t, tree, workdir, strings.Fields(rest))
			} else {
				checkExists(t, tree, strings.Fields(rest))
			}
		case "ENV":
			im.env = append(im.env, strings.Fields(rest)...)
		case "USER":
			im.user = credential(t, rest)
		case "ENTRYPOINT", "CMD":
			to := map[string]*[]string{"ENTRYPOINT": &im.entrypoint, "CMD": &im.cmd}[word]
			if err := json.Unmarshal([]byte(rest), to); err != nil {
				t.Fatalf("%s %s: %v", word, rest, err)
			}
		case "EXPOSE":
			im.exposed = rest
		case "VOLUME":
			if _, err := os.Stat(im.files.path(rest)); err != nil {
				t.Errorf("VOLUME %s: %v", rest, err)
			}
		default:
			t.Fatalf("unknown instruction %s", word)
		}
	}
	return im
}

// checkExists checks that the sources of a COPY are in the tree.
func checkExists(t *testing.T, tree string, words []string) {
	t.Helper()
	for _, name := range words[:len(words)-1] {
		if _, err := os.Stat(filepath.Join(tree, name)); err != nil {
			t.Errorf("COPY %s: %v", name, err)
		}
	}
}

// copy runs COPY --from=build [--chown=UID:GID] FROM TO.
func (im image) copy(t *testing.T, tree, workdir string, words []string) {
	t.Helper()
	owner := &syscall.Credential{}
	if words[0] != "--from=build" {
		t.Fatalf("COPY %q", words)
	}
	if chown, ok := strings.CutPrefix(words[1], "--chown="); ok {
		owner = credential(t, chown)
	}
	inside, ok := strings.CutPrefix(words[len(words)-2], workdir+"/")
	if !ok {
		t.Fatalf("COPY %q is not from %s", words, workdir)
	}
	from, to := filepath.Join(tree, inside), im.files.path(words[len(words)-1])
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at := filepath.Join(to, strings.TrimPrefix(path, from))
		if d.IsDir() {
			if err := os.MkdirAll(at, 0o755); err != nil {
				return err
			}
		} else {
			copyFile(t, path, at)
		}
		return os.Chown(at, int(owner.Uid), int(owner.Gid))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// credential parses UID:GID.
func credential(t *testing.T, text string) *syscall.Credential {
	t.Helper()
	var ids [2]uint32
	for i, id := range strings.SplitN(text, ":", 2) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			t.Fatal(fmt.Errorf("%s: must be numeric UID:GID, the image has no user names: %w", text, err))
		}
		ids[i] = uint32(n)
	}
	return &syscall.Credential{Uid: ids[0], Gid: ids[1]}
}
