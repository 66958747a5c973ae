package registry

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// A record on NATS can be written by anybody who has credentials for it. What a person
// decided about a device must come from a node of the tenant, so nodes vouch for it with
// the secret that they share.

// voucherSize is the size of a voucher in bytes.
const voucherSize = 16

// recordKey derives the key of vouchers from the secret of a tenant.
func recordKey(secret []byte, tenant string) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, fmt.Sprintf("ferrule records %q", tenant), sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	return key, nil
}

// voucher authenticates the decisions about a device in its record. It is valid for this
// ID and this hardware only.
func (v *view) voucher(dev *ferrule.Device) string {
	h := hmac.New(sha256.New, v.key)
	decisions := []string{dev.ID, dev.Address, string(dev.Trust), string(dev.Accepted), fmt.Sprint(dev.Local, millis(dev.AcceptedAt))}
	if dev.Sensor {
		decisions = append(decisions, "sensor")
	}
	fmt.Fprintf(h, "%q", decisions)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:voucherSize])
}

// vouched reports whether a node of this tenant wrote the decisions in a record.
func (v *view) vouched(e entry) bool {
	return e.voucher != "" && hmac.Equal([]byte(v.voucher(e.device)), []byte(e.voucher))
}
