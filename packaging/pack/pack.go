// Command pack makes the parts of a release that must be the same on every
// machine, byte for byte. .ci/release runs it:
//
//	pack archive OUT DIR     OUT (.tar.gz or .zip) of the folder DIR
//	pack sbom BINARY         what is linked into a binary, as CycloneDX
//	pack notices BINARY…     the licences of what is linked into binaries
//
// Times are SOURCE_DATE_EPOCH, and the version is VERSION.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	at := time.Unix(seconds, 0).UTC()
	switch {
	case len(args) == 3 && args[0] == "archive":
		return archive(args[1], args[2], at)
	case len(args) == 2 && args[0] == "sbom":
		return sbom(os.Stdout, args[1], os.Getenv("VERSION"), at)
	case len(args) > 1 && args[0] == "notices":
		return notices(os.Stdout, args[1:])
	}
	return errors.New("want archive OUT DIR, sbom BINARY, or notices BINARY…")
}
