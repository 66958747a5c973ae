package calls

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"sync"
)

// tagSize is the size of the tag at the start of every message between nodes.
const tagSize = 16

// MinSecret is the shortest secret that the nodes of a tenant may share, in bytes.
const MinSecret = 32

// run is one run of a node.
type run struct{ node, boot string }

// keys derives the keys by which nodes vouch for what they send each other. There is one
// for each pair of runs and each direction, so a message cannot be used for a third node,
// in the other direction, or after either node has restarted.
type keys struct {
	secret []byte
	self   run

	mu     sync.Mutex
	hashes map[direction]*sync.Pool // of hash.Hash, with the key
}

type direction struct {
	peer run
	out  bool
}

// maxKeys limits the keys in memory. Deriving one again takes microseconds.
const maxKeys = 4096

func newKeys(secret []byte, self run) *keys {
	return &keys{secret: secret, self: self, hashes: make(map[direction]*sync.Pool)}
}

// seal returns a message to a run of another node: a tag and the data.
func (k *keys) seal(to run, context string, data []byte) ([]byte, error) {
	message := make([]byte, 0, sha256.Size+len(data))
	tag, err := k.tag(message, direction{to, true}, context, data)
	if err != nil {
		return nil, err
	}
	return append(tag, data...), nil
}

var errForged = errors.New("the message is not from a node of this tenant")

// open returns the data of a message from a run of another node.
func (k *keys) open(from run, context string, message []byte) ([]byte, error) {
	if len(message) < tagSize {
		return nil, errForged
	}
	tag, err := k.tag(nil, direction{from, false}, context, message[tagSize:])
	if err != nil {
		return nil, err
	}
	if !hmac.Equal(tag, message[:tagSize]) {
		return nil, errForged
	}
	return message[tagSize:], nil
}

// tag authenticates data in its context: what it asks for and where it is answered. The buffer
// must be empty; the tag uses its memory if there is enough.
func (k *keys) tag(buffer []byte, d direction, context string, data []byte) ([]byte, error) {
	pool, err := k.pool(d)
	if err != nil {
		return nil, err
	}
	h := pool.Get().(hash.Hash)
	defer pool.Put(h)
	h.Reset()
	h.Write([]byte(context + "\x00"))
	h.Write(data)
	return h.Sum(buffer)[:tagSize], nil
}

// pool returns hashes with the key of a direction. Making one takes longer than using it.
func (k *keys) pool(d direction) (*sync.Pool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if pool := k.hashes[d]; pool != nil {
		return pool, nil
	}
	from, to := d.peer, k.self
	if d.out {
		from, to = to, from
	}
	key, err := hkdf.Key(sha256.New, k.secret, nil, fmt.Sprintf("ferrule calls %q", []string{from.node, from.boot, to.node, to.boot}), sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	if len(k.hashes) >= maxKeys {
		clear(k.hashes)
	}
	pool := &sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}
	k.hashes[d] = pool
	return pool, nil
}

// newToken returns the token of a call: the run of its node, a number that counts up, and
// a random text, which makes the reply subject hard to guess.
func newToken(boot string, number uint64, random string) string {
	return boot + "-" + strconv.FormatUint(number, 36) + "-" + random
}

// parseReply returns the run of the node that waits at a reply subject, and the number of
// its call.
func parseReply(prefix, subject string) (run, uint64, error) {
	rest, ok := strings.CutPrefix(subject, prefix)
	node, token, dot := strings.Cut(rest, ".")
	parts := strings.Split(token, "-")
	if !ok || !dot || len(parts) != 3 || node == "" || strings.Contains(token, ".") {
		return run{}, 0, errForged
	}
	number, err := strconv.ParseUint(parts[1], 36, 64)
	if err != nil {
		return run{}, 0, errForged
	}
	return run{node, parts[0]}, number, nil
}
