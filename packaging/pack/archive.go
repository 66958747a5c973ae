package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// archive packs the files of dir, under the name of dir and in order. It keeps only
// their names, contents and executable bits, so that the result is reproducible.
func archive(out, dir string, at time.Time) (err error) {
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	switch {
	case strings.HasSuffix(out, ".tar.gz"):
		return writeTar(file, dir, at)
	case strings.HasSuffix(out, ".zip"):
		return writeZip(file, dir, at)
	}
	return fmt.Errorf("%s: must end in .tar.gz or .zip", out)
}

func writeTar(to io.Writer, dir string, at time.Time) error {
	zw, err := gzip.NewWriterLevel(to, gzip.BestCompression)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(zw)
	err = eachFile(dir, func(name string, mode fs.FileMode, size int64, data io.Reader) error {
		err := tw.WriteHeader(&tar.Header{Name: name, Mode: int64(mode), Size: size, ModTime: at, Format: tar.FormatUSTAR})
		if err == nil {
			_, err = io.Copy(tw, data)
		}
		return err
	})
	return errors.Join(err, tw.Close(), zw.Close())
}

func writeZip(to io.Writer, dir string, at time.Time) error {
	zw := zip.NewWriter(to)
	err := eachFile(dir, func(name string, mode fs.FileMode, _ int64, data io.Reader) error {
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: at}
		header.SetMode(mode)
		w, err := zw.CreateHeader(header)
		if err == nil {
			_, err = io.Copy(w, data)
		}
		return err
	})
	return errors.Join(err, zw.Close())
}

// eachFile calls do with each file of dir, in lexical order.
func eachFile(dir string, do func(name string, mode fs.FileMode, size int64, data io.Reader) error) error {
	return filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		file, err := os.Open(at)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		name, err := filepath.Rel(filepath.Dir(dir), at)
		if err != nil {
			return err
		}
		return do(path.Clean(filepath.ToSlash(name)), mode, info.Size(), file)
	})
}
