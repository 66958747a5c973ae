// Package localca makes certificates for a network that public certificate authorities
// do not serve: a CA of the owner's own, and a certificate of the gateway signed by it.
//
//	DIR/ca.key      key of the CA, made once
//	DIR/ca.crt      root certificate, for agents, phones and devices to trust
//	DIR/server.key  key of the gateway, made once
//	DIR/server.crt  certificate of the gateway, made again by Init and Renew
//
// The CA is never replaced, because everybody who trusts it would have to be visited
// again. The certificate of the gateway is replaced with one rename and keeps its key, so
// a gateway that reads the files meanwhile always finds a pair.
package localca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The lifetimes of certificates. Phones reject server certificates that are valid for
// more than 398 days.
const (
	caLife     = 10 * 365 * 24 * time.Hour
	serverLife = 397 * 24 * time.Hour
	// RenewBefore is the time before its end at which a certificate is due for renewal.
	RenewBefore = 30 * 24 * time.Hour
	// clockSkew is how far the clock of a client may be behind.
	clockSkew = time.Hour
)

// Files are the paths of the files in a directory.
type Files struct {
	CA     string `json:"ca"`
	CAKey  string `json:"ca_key"`
	Cert   string `json:"cert"`
	Key    string `json:"key"`
	folder string
}

// In returns the paths of the files in a directory.
func In(dir string) Files {
	at := func(name string) string { return filepath.Join(dir, name) }
	return Files{CA: at("ca.crt"), CAKey: at("ca.key"), Cert: at("server.crt"), Key: at("server.key"), folder: dir}
}

// Dir returns the directory of the files in a data directory.
func Dir(data string) string { return filepath.Join(data, "tls") }

// Made is what Init made.
type Made struct {
	Files
	// NewCA reports whether the CA was made, too.
	NewCA bool `json:"new_ca"`
	// Fingerprint is the SHA-256 of the root certificate.
	Fingerprint string `json:"fingerprint"`
	// Names are the names and addresses that the certificate is for, and Host the one that
	// other machines are most likely to reach.
	Names   []string  `json:"names"`
	Host    string    `json:"host"`
	Expires time.Time `json:"expires"`
}

// Init makes a CA in a directory, if there is none, and a certificate for this machine
// and for names. Names of the previous certificate stay.
func Init(dir string, names []string) (Made, error) { return here().init(dir, names) }

func (m machine) init(dir string, names []string) (Made, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Made{}, err
	}
	given, err := parseNames(names)
	if err != nil {
		return Made{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Made{}, err
	}
	a := authority{machine: m, Files: In(dir)}
	made, err := a.open(given)
	if err != nil {
		return Made{}, err
	}
	if err := a.permits(given); err != nil {
		return Made{}, err
	}
	leaf, err := a.issue(given)
	if err != nil {
		return Made{}, err
	}
	return Made{
		Files: a.Files, NewCA: made, Fingerprint: Fingerprint(a.root), Names: namesOf(leaf).strings(),
		Host: m.reachable(given), Expires: leaf.NotAfter,
	}, nil
}

// Fingerprint returns the SHA-256 of a certificate as phones and browsers show it.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
}

// authority is a CA with its key.
type authority struct {
	Files
	machine machine
	root    *x509.Certificate
	key     crypto.Signer
}

// open reads the CA, or makes one that may sign for this machine and for given names. It
// reports whether it made one.
func (a *authority) open(given nameSet) (made bool, err error) {
	_, missing := os.Stat(a.CA)
	if made = errors.Is(missing, fs.ErrNotExist); !made {
		if a.root, err = ReadCertificate(a.CA); err != nil {
			return false, err
		}
		if a.key, err = readKey(a.CAKey); errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("the key of the CA is missing, so it cannot sign a certificate: %w. Restore it from a backup, or make another CA with --dir", err)
		}
	} else {
		if a.key, err = openKey(a.CAKey); err != nil {
			return true, err
		}
		if a.root, err = a.makeRoot(given); err != nil {
			return true, err
		}
	}
	if err == nil && !publicKey(a.root).Equal(a.key.Public()) {
		err = fmt.Errorf("%s does not belong to %s. Restore both from a backup, or make another CA with --dir", a.CAKey, a.CA)
	}
	return made, err
}

// makeRoot makes the root certificate. It is limited to names and addresses of local
// networks, so that a stolen key is useless against public web sites. The limit is not
// critical: TLS libraries of small devices do not know it and would refuse the root.
func (a *authority) makeRoot(given nameSet) (*x509.Certificate, error) {
	dns, ips := limits(a.machine, given)
	template := &x509.Certificate{
		Subject:   pkix.Name{Organization: []string{"Ferrule"}, CommonName: fmt.Sprintf("Ferrule CA of %.36s, %s", a.machine.host, a.machine.now.Format(time.DateOnly))},
		NotBefore: a.machine.now.Add(-clockSkew), NotAfter: a.machine.now.Add(caLife),
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		KeyUsage:            x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		PermittedDNSDomains: dns, PermittedIPRanges: ips,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	if err := writeNew(a.CA, "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// permits returns an error for the first name that the CA is not limited to.
func (a *authority) permits(names nameSet) error {
	for _, name := range names.strings() {
		if !permitted(a.root, name) {
			return fmt.Errorf("the CA in %s was made for other names and cannot sign for %s. Make another CA with --dir, and name all hosts", a.folder, name)
		}
	}
	return nil
}

// issue makes the certificate of the gateway, for this machine, given names and the names
// of the previous certificate. Names that the CA may not sign for are left out.
func (a *authority) issue(given nameSet) (*x509.Certificate, error) {
	names := given.with(a.machine.names())
	if previous, err := ReadCertificate(a.Cert); err == nil {
		names = names.with(namesOf(previous))
	}
	names = names.only(func(name string) bool { return permitted(a.root, name) })
	key, err := openKey(a.Key)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{Organization: []string{"Ferrule"}, CommonName: a.machine.host},
		NotBefore: a.machine.now.Add(-clockSkew), NotAfter: a.machine.now.Add(serverLife),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		// NATS servers use one certificate for both directions.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    names.dns, IPAddresses: names.netIPs(),
	}
	if template.NotAfter.After(a.root.NotAfter) {
		template.NotAfter = a.root.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	if err := replace(a.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Renew makes the certificate of a gateway again if it is due for renewal and Init made
// it. It reports whether it did. Cert and key are the files that the gateway uses.
func Renew(cert, key string) (renewed bool, err error) { return here().renew(cert, key) }

func (m machine) renew(cert, key string) (bool, error) {
	leaf, err := ReadCertificate(cert)
	if err != nil || leaf.NotAfter.Sub(m.now) > RenewBefore || !own(cert, key, leaf) {
		return false, err
	}
	a := authority{machine: m, Files: In(filepath.Dir(cert))}
	if _, err := a.open(nameSet{}); err != nil {
		return false, err
	}
	if a.root.NotAfter.Sub(m.now) < RenewBefore {
		return false, fmt.Errorf("the CA in %s ends on %s; make another with `ferrule tls init --dir DIR`, and let agents and phones trust it", a.folder, a.root.NotAfter.Format(time.DateOnly))
	}
	_, err = a.issue(nameSet{})
	return err == nil, err
}

// own reports whether Init made a certificate.
func own(cert, key string, leaf *x509.Certificate) bool {
	f := In(filepath.Dir(cert))
	root, err := ReadCertificate(f.CA)
	return err == nil && filepath.Clean(cert) == f.Cert && filepath.Clean(key) == f.Key && leaf.CheckSignatureFrom(root) == nil
}

// Root returns the root certificate, as PEM, that Init made for a certificate, if any.
func Root(cert, key string) ([]byte, bool) {
	leaf, err := ReadCertificate(cert)
	if err != nil || !own(cert, key, leaf) {
		return nil, false
	}
	root, err := ReadCertificate(In(filepath.Dir(cert)).CA)
	if err != nil {
		return nil, false
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}), true
}

// publicKey returns the key of a certificate for comparison. It never equals a key of
// another kind.
func publicKey(c *x509.Certificate) interface{ Equal(crypto.PublicKey) bool } {
	if key, ok := c.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok {
		return key
	}
	return &ecdsa.PublicKey{Curve: elliptic.P256()}
}
