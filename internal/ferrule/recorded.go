package ferrule

// Recorded is a Reading as it was kept, for who reads what was kept in order.
type StoredReading struct {
	// Reading is nil where it is only told that there is no more by now.
	Reading *Reading
	// At is where it stands. It is the word of whoever keeps it, by which one is asked
	// for what comes after.
	Position string
	// Lost tells that there may have been others before it, which are no longer kept.
	Lost bool
	// Again tells that it may have been read before: where it was read up to cannot be
	// found any more.
	MayRepeat bool
	// Rest is how many more are kept by now.
	Remaining uint64
}
