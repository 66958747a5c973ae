package main

// clients tells which agents know of this gateway by their own configs. Nothing
// is known of them yet.
func clients() []finding { return nil }
