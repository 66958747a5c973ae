package journal

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// KeyFile is the private key of the node in the data directory, as PEM.
const KeyFile = "node.key"

// keyPrefix begins the text of a public key.
const keyPrefix = "ed25519:"

// PublicKey is the public key of a node as text, such as ed25519:V5rB….
type PublicKey string

// ParsePublicKey checks the text of a public key.
func ParsePublicKey(text string) (PublicKey, error) {
	key := PublicKey(strings.TrimSpace(text))
	if key.bytes() == nil {
		return "", fmt.Errorf("must be a public key such as %s…, as `ferrule audit key` prints it; got %q", keyPrefix, ferrule.OneLine(ferrule.Clean(text, ferrule.MaxWord), 80))
	}
	return key, nil
}

// bytes returns the key itself, or nil if the text is invalid.
func (k PublicKey) bytes() ed25519.PublicKey {
	text, ok := strings.CutPrefix(string(k), keyPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) != ed25519.PublicKeySize {
		return nil
	}
	return key
}

func publicKey(private ed25519.PrivateKey) PublicKey {
	return PublicKey(keyPrefix + base64.StdEncoding.EncodeToString(private.Public().(ed25519.PublicKey)))
}

// ReadPublicKey returns the public key of the node with this data directory. The error is
// os.ErrNotExist if it has no key yet.
func ReadPublicKey(dir string) (PublicKey, error) {
	private, err := readKey(dir)
	if err != nil {
		return "", err
	}
	return publicKey(private), nil
}

// readKey reads the private key of the node.
func readKey(dir string) (ed25519.PrivateKey, error) {
	path := filepath.Join(dir, KeyFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s is not a PEM file", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s is not an Ed25519 key", path)
	}
	return private, nil
}

// makeKey reads the private key of the node, or creates it.
func makeKey(dir string) (ed25519.PrivateKey, error) {
	private, err := readKey(dir)
	if !errors.Is(err, os.ErrNotExist) {
		return private, err
	}
	if _, private, err = ed25519.GenerateKey(rand.Reader); err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return private, replaceFile(filepath.Join(dir, KeyFile), text)
}

// replaceFile writes a file for this user only. After a crash it has the old content or
// the new.
func replaceFile(path string, data []byte) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(file.Name())
		}
	}()
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// statement is what a signature says. A checkpoint in a journal cannot stand for the
// newest head: else an attacker could cut a journal at any checkpoint and take the head
// from there.
type statement string

const (
	hadRecord  statement = "checkpoint" // the chain had this record
	newestHead statement = "head"       // and it was the last one
)

// text returns the bytes that are signed.
func (s statement) text(c *ferrule.Checkpoint) []byte {
	return fmt.Appendf(nil, "ferrule journal %s\n%s\n%d\n%s\n%s\n", s, c.Chain, c.Seq, c.Hash, c.Time.UTC().Format(time.RFC3339Nano))
}

// sign signs that a record is in the chain.
func (s statement) sign(private ed25519.PrivateKey, chain string, at link) *ferrule.Checkpoint {
	c := &ferrule.Checkpoint{
		Chain: chain, Seq: at.seq, Hash: hex.EncodeToString(at.hash[:]), Time: time.Now().UTC(), Key: string(publicKey(private)),
	}
	c.Signature = ed25519.Sign(private, s.text(c))
	return c
}

// isSigned reports whether the signature is that of the key in the checkpoint.
func (s statement) isSigned(c *ferrule.Checkpoint) bool {
	key := PublicKey(c.Key).bytes()
	return key != nil && ed25519.Verify(key, s.text(c), c.Signature)
}
