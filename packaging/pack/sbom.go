package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// bom is the part of CycloneDX 1.6 that is used here.
type bom struct {
	Schema     string      `json:"$schema"`
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Serial     string      `json:"serialNumber"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// sbom writes the modules of a binary, from the build info in it.
func sbom(to io.Writer, binary, version string, at time.Time) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	if version == "" {
		return fmt.Errorf("VERSION is not set")
	}
	sum := sha256.Sum256(data)
	purl := fmt.Sprintf("pkg:golang/%s@v%s?type=module&goos=%s&goarch=%s",
		info.Main.Path, strings.ReplaceAll(version, "+", "%2B"), setting(info, "GOOS"), setting(info, "GOARCH"))
	b := bom{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", Spec: "1.6", Version: 1,
		Serial: serial(sum),
		Metadata: metadata{at.Format(time.RFC3339), component{
			Type: "application", Ref: purl, Name: "ferrule", Version: version, PURL: purl,
			Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}},
		}},
		Components: []component{library("std", strings.TrimPrefix(info.GoVersion, "go"))},
	}
	for _, m := range modules(info) {
		c := library(m.Path, m.Version)
		c.Properties = []property{{"go.sum", m.Sum}} // a hash over all files of the module, so not a CycloneDX file hash
		b.Components = append(b.Components, c)
	}
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(b)
}

func library(path, version string) component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{Type: "library", Ref: purl, Name: path, Version: version, PURL: purl}
}

// modules returns the modules of a binary except the main module.
func modules(info *debug.BuildInfo) []*debug.Module {
	var all []*debug.Module
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, m)
	}
	return all
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// serial returns a UUID derived from the binary, so that it is reproducible.
func serial(sum [sha256.Size]byte) string {
	sum[6] = sum[6]&0x0f | 0x80 // version 8: custom
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
