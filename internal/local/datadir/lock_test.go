package datadir

import (
	"errors"
	"strings"
	"testing"
)

// TestClaim checks that one process at a time has the claim, and that others see it.
func TestClaim(t *testing.T) {
	dir := t.TempDir()
	if Claimed(dir) {
		t.Error("claimed before anybody called Claim")
	}
	claim := Claim(dir)
	if claim == nil || !Claimed(dir) || Claim(dir) != nil {
		t.Errorf("claim: %v", claim)
	}
	claim.Close()
	if Claimed(dir) {
		t.Error("still claimed after Close")
	}
}

// TestLockTwice checks that the error for a second gateway says how to add a device to the
// first one.
func TestLockTwice(t *testing.T) {
	dir := t.TempDir()
	file, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	wants := func(want string) {
		t.Helper()
		if _, err := Lock(dir); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--listen") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	wants("stop the gateway first, and start it with all devices")
	if err := SetConfig(dir, "/etc/ferrule/ferrule.yaml"); err != nil {
		t.Fatal(err)
	}
	wants("add it to /etc/ferrule/ferrule.yaml and run `ferrule reload`")
}
