package main

import "testing"

// TestClaim: one process at a time is about to be the gateway, and others see it.
func TestClaim(t *testing.T) {
	dir := t.TempDir()
	if claimed(dir) {
		t.Error("nobody has claimed it")
	}
	claim := claimData(dir)
	if claim == nil || !claimed(dir) || claimData(dir) != nil {
		t.Errorf("claimed: %v", claim)
	}
	claim.Close()
	if claimed(dir) {
		t.Error("it is claimed for ever")
	}
}
