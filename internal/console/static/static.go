// Package static has the style sheet, scripts and vendored files of the console. They are
// embedded, joined and compressed when the program starts, and served under a name with
// their hash, so that browsers keep them for good.
//
//	vendor/uplot.css, css/*.css ─▶ console.css        vendor/ ─▶ htmx.js, uplot.js
//	js/*.js                     ─▶ console.js
//
// The files of a folder are joined in the order of their names. vendor/README.md has the
// versions, licenses and hashes of what others wrote.
package static

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed css js vendor
var files embed.FS

// Prefix is the path of the files.
const Prefix = "/static/"

// file is a file as it is served.
type file struct {
	mime       string
	plain, zip []byte
	hash       string
}

// all returns the files, by name.
var all = sync.OnceValue(func() map[string]file {
	const script = "text/javascript; charset=utf-8"
	return map[string]file{
		"console.css": newFile("text/css; charset=utf-8", append(read("vendor/uplot.css"), join("css")...)),
		"console.js":  newFile(script, join("js")),
		"htmx.js":     newFile(script, read("vendor/htmx.js")),
		"uplot.js":    newFile(script, read("vendor/uplot.js")),
	}
})

// read returns a file, with a newline at its end.
func read(name string) []byte {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return append(data, '\n')
}

// join returns the files of a folder, one after the other.
func join(folder string) []byte {
	names, err := fs.Glob(files, folder+"/*")
	if err != nil {
		panic(err)
	}
	var all bytes.Buffer
	for _, name := range names {
		all.Write(read(name))
	}
	return all.Bytes()
}

func newFile(mime string, plain []byte) file {
	var zip bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zip, gzip.BestCompression) // the level is valid
	w.Write(plain)
	w.Close()
	sum := sha256.Sum256(plain)
	return file{mime, plain, zip.Bytes(), hex.EncodeToString(sum[:6])}
}

// URL returns the URL of a file, or "" if there is none.
func URL(name string) string {
	f, ok := all()[name]
	if !ok {
		return ""
	}
	return Prefix + f.hash + "/" + name
}

// CSS returns some files of the style sheet, one after the other.
func CSS(names ...string) string {
	var all strings.Builder
	for _, name := range names {
		all.Write(read("css/" + name))
	}
	return all.String()
}

// Serve serves the files.
func Serve(w http.ResponseWriter, r *http.Request) {
	hash, name := path.Split(strings.TrimPrefix(r.URL.Path, Prefix))
	f, ok := all()[name]
	if !ok || strings.TrimSuffix(hash, "/") != f.hash {
		http.NotFound(w, r)
		return
	}
	head := w.Header()
	head.Set("Content-Type", f.mime)
	head.Set("Cache-Control", "public, max-age=31536000, immutable")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Vary", "Accept-Encoding")
	data := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		head.Set("Content-Encoding", "gzip")
		data = f.zip
	}
	w.Write(data)
}
