package datadir

import "testing"

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
