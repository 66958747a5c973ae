package taskstore

import (
	"bytes"
	"compress/gzip"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// A sealed record is a header, and an encrypted text that is cut into parts. The first part
// follows the header:
//
//	format (1) | number of other parts (1) | set (8) | first part
//
// Set is random. It names the parts of one version of a record.
const (
	format     = 1
	setSize    = 8
	headerSize = 2 + setSize
	// partSize fits into a message of NATS.
	partSize = 768 << 10
	// maxParts is enough for MaxRecord if it cannot be compressed.
	maxParts = MaxRecord/partSize + 1
)

var (
	errForged = errors.New("it is damaged, or its writer does not have the secret of this tenant")
	errPart   = errors.New("a part of it is missing")
)

// seal compresses and encrypts the text of a record.
func seal(key []byte, id string, text []byte) (head []byte, rest [][]byte, err error) {
	aead, err := aeadOf(key, id)
	if err != nil {
		return nil, nil, err
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(text); err != nil {
		return nil, nil, err
	}
	if err := w.Close(); err != nil {
		return nil, nil, err
	}
	n := (zipped.Len() + aead.Overhead() - 1) / partSize
	if n > maxParts {
		return nil, nil, ErrTooLarge
	}
	header := make([]byte, headerSize, headerSize+partSize)
	header[0], header[1] = format, byte(n)
	rand.Read(header[2:headerSize])
	sealed := aead.Seal(nil, nil, zipped.Bytes(), header)
	first := min(len(sealed), partSize)
	head = append(header, sealed[:first]...)
	for sealed = sealed[first:]; len(sealed) > 0; {
		size := min(len(sealed), partSize)
		rest, sealed = append(rest, sealed[:size]), sealed[size:]
	}
	return head, rest, nil
}

// parts returns how many other parts a record has.
func parts(head []byte) (int, error) {
	if len(head) < headerSize || head[0] != format || head[1] > maxParts {
		return 0, errForged
	}
	return int(head[1]), nil
}

// partKey returns the key of part i of a record.
func partKey(id string, head []byte, i int) string {
	return fmt.Sprintf("%s.%s.%d", id, hex.EncodeToString(head[2:headerSize]), i)
}

// unseal returns the text of a record that a node of the tenant sealed for this ID.
func unseal(key []byte, id string, head []byte, rest [][]byte) ([]byte, error) {
	if n, err := parts(head); err != nil || n != len(rest) {
		return nil, errForged
	}
	aead, err := aeadOf(key, id)
	if err != nil {
		return nil, err
	}
	sealed := bytes.Clone(head[headerSize:])
	for _, part := range rest {
		sealed = append(sealed, part...)
	}
	zipped, err := aead.Open(nil, nil, sealed, head[:headerSize])
	if err != nil {
		return nil, errForged
	}
	r, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, errForged
	}
	text, err := io.ReadAll(io.LimitReader(r, MaxRecord+1))
	if err != nil || len(text) > MaxRecord {
		return nil, errForged
	}
	return text, nil
}

// aeadOf returns the encryption of one record. Each has its own key, because the number of
// random nonces per key is limited.
func aeadOf(key []byte, id string) (cipher.AEAD, error) {
	own, err := hkdf.Key(sha256.New, key, nil, "task "+id, sha256.Size)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
