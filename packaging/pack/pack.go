// Command pack creates the reproducible parts of a release: the same input gives the
// same bytes on every machine. It is run by .ci/release:
//
//	pack archive OUT DIR     packs the folder DIR into OUT (.tar.gz or .zip)
//	pack sbom BINARY         prints the modules of a binary as CycloneDX
//	pack notices BINARY…     prints the licenses of the modules of binaries
//
// The environment sets all times (SOURCE_DATE_EPOCH) and the version (VERSION).
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
	return errors.New("usage: pack archive OUT DIR | sbom BINARY | notices BINARY…")
}
