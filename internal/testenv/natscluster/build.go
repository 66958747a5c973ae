package natscluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

const serverModule = "github.com/nats-io/nats-server/v2"

// moduleDir returns the directory of go.mod. Tests run in the directory of their package.
func moduleDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("the test does not run inside the module")
		}
		dir = up
	}
}

var (
	building sync.Mutex
	program  string
)

// build returns the path of a nats-server of the version in go.mod. It is stored in the
// user's cache directory, by version, so that it is built once for all packages.
func build(module string) (string, error) {
	building.Lock()
	defer building.Unlock()
	if program != "" {
		return program, nil
	}
	version, err := goTool(module, "list", "-m", "-f", "{{.Version}}", serverModule)
	if err != nil {
		return "", err
	}
	goVersion, err := goTool(module, "env", "GOVERSION")
	if err != nil {
		return "", err
	}
	path := filepath.Join(cacheDir(), fmt.Sprintf("nats-server-%s-%s-%s-%s", version, runtime.GOOS, runtime.GOARCH, goVersion))
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		err = buildNew(module, path)
		if err != nil {
			return "", err
		}
	}
	program = path
	return program, nil
}

// cacheDir returns where programs are stored. For a user without a home it is in the
// directory of temporary files.
func cacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "ferrule-testenv")
}

// buildNew builds in a temporary directory and then renames the program, so that another
// test never runs an incomplete one.
func buildNew(module, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), "build")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "program")
	if _, err := goTool(module, "build", "-trimpath", "-o", out, serverModule); err != nil {
		return err
	}
	return os.Rename(out, path)
}

func goTool(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=", "GOARCH=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
