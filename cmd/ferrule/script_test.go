package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"ferrule": main, "flash": flash, "bare": bare, "floor": floor, "lamp": lamp, "turnstile": turnstile, "gallery": gallery, "proxy": proxy, "weighed": weighed, "dialed": dialed, "tasker": tasker, "plugin": plugin,
	})
}

// TestScripts runs testdata/script. Each script has a data directory and a home
// of its own, two free addresses in $SIM and $SIM2, and one more command:
//
//	until REGEXP COMMAND…   runs a command until its output matches, for at
//	                        most twenty seconds
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_CONFIG_HOME", env.WorkDir+"/config")
			env.Setenv("FERRULE_DATA", env.WorkDir+"/data")
			env.Setenv("FERRULE_LISTEN", "127.0.0.1:0")
			for _, name := range []string{"SIM", "SIM2"} {
				addr, err := freeAddr()
				if err != nil {
					return err
				}
				env.Setenv(name, addr)
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"until": until},
	})
}

// freeAddr returns an address that is not in use and outside the range of ephemeral
// ports.
func freeAddr() (string, error) {
	for range 100 {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(9000)))
		if err == nil {
			defer ln.Close()
			return ln.Addr().String(), nil
		}
	}
	return "", errors.New("no port is free")
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP COMMAND…")
	}
	re := regexp.MustCompile(args[0])
	for end := time.Now().Add(wait.Ample); ; time.Sleep(20 * time.Millisecond) {
		ts.Exec(args[1], args[2:]...) // a failure is also not a match
		if out := ts.ReadFile("stdout"); re.MatchString(out) {
			return
		} else if time.Now().After(end) {
			ts.Fatalf("no match for %s in %s%s", args[0], out, ts.ReadFile("stderr"))
		}
	}
}
