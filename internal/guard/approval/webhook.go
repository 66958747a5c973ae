package approval

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// How the webhook is called.
const (
	hookTimeout  = 10 * time.Second // of one attempt
	hookAttempts = 6
	hookDelay    = time.Second // before the second attempt; it triples
	hookParallel = 8
)

// The headers of a webhook. The signature is that of the timestamp, a dot and the body.
const (
	timestampHeader = "Ferrule-Timestamp"
	signatureHeader = "Ferrule-Signature"
)

// notice tells the webhook about a request.
type notice struct {
	request *request
	token   string // of the link; empty without one
}

// newLink gives a record a new link, if links are sent, and returns its token. Only the
// hash of the token is stored.
func (a *Approvals) newLink(r *Record) (token string) {
	if a.cfg.Webhook.Link == "" {
		return ""
	}
	token = strings.ToLower(rand.Text()) // 130 random bits
	r.Link = hash([]byte(token))
	return token
}

// notify queues a notice, if there is a webhook. It is called with mu held.
func (a *Approvals) notify(r *request, token string) {
	if a.cfg.Webhook.URL == "" {
		return
	}
	r.notified = true
	select {
	case a.notices <- notice{r, token}:
	default: // as many as can be stored
	}
}

// notifyAll tells the webhook about requests of an earlier run: it may not have heard of
// them, and their links are not known any longer.
func (a *Approvals) notifyAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cfg.Webhook.URL == "" {
		return
	}
	for _, r := range a.byKey {
		if r.state != waiting || r.notified {
			continue
		}
		next := r.Record
		token := a.newLink(&next)
		if err := a.store.put(next); err != nil {
			a.parts.Log.Warn("approvals: the webhook is not told about a request", "device", r.Device, "tool", r.Tool, "err", err)
			continue
		}
		r.Link = next.Link
		a.notify(r, token)
	}
}

// hook calls the webhook.
type hook struct {
	approvals *Approvals
	client    http.Client
	slots     chan struct{} // limits parallel attempts
}

// newHook returns nil if there is no webhook.
func newHook(a *Approvals) *hook {
	if a.cfg.Webhook.URL == "" {
		return nil
	}
	h := &hook{approvals: a, slots: make(chan struct{}, hookParallel)}
	h.client.Timeout = hookTimeout
	// A redirect could lead to where the owner did not want the link to go.
	h.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return h
}

// payload is what the webhook gets.
type payload struct {
	Event string `json:"event"`
	// Text is for services that show a member of this name.
	Text    string           `json:"text"`
	Request ferrule.Approval `json:"request"`
	Link    string           `json:"link,omitempty"`
}

// deliver calls the webhook until it answers, the request has an answer, or it failed too
// often.
func (h *hook) deliver(ctx context.Context, n notice) {
	a := h.approvals
	delay := hookDelay
	for attempt := 1; ; attempt++ {
		body, err := h.body(n)
		if err != nil || body == nil {
			return
		}
		if err = h.send(ctx, body); err == nil {
			return
		}
		if attempt == hookAttempts || ctx.Err() != nil {
			a.parts.Log.Warn("approvals: the webhook was not told about a request; `ferrule approvals` shows it", "device", n.request.Device, "tool", n.request.Tool, "err", ferrule.MaskError(err))
			return
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
		delay *= 3
	}
}

// body returns what is sent, or nil if the request no longer waits.
func (h *hook) body(n notice) ([]byte, error) {
	a := h.approvals
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.sweep(n.request, time.Now(), a.parts.Version()) || n.request.state != waiting {
		return nil, nil
	}
	view := a.view(n.request)
	p := payload{Event: "approval_requested", Text: fmt.Sprintf("%s (%s)", view.Summary(), view.ID), Request: view}
	if n.token != "" {
		p.Link = strings.TrimSuffix(a.cfg.Webhook.Link, "/") + pagePath + n.token
		p.Text += " " + p.Link
	}
	return json.Marshal(p)
}

// send makes one attempt.
func (h *hook) send(ctx context.Context, body []byte) error {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	hook := h.approvals.cfg.Webhook
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.URL.Reveal(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	SignRequest(req, hook.Secret, strconv.FormatInt(time.Now().Unix(), 10), body)
	resp, err := h.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the webhook answered %s", resp.Status)
	}
	return nil
}

// SignRequest sets the headers of a request to a webhook.
func SignRequest(req *http.Request, secret ferrule.Secret, timestamp string, body []byte) {
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "ferrule")
	req.Header.Set(timestampHeader, timestamp)
	req.Header.Set(signatureHeader, Sign(secret, timestamp, body))
}

// Sign returns the signature of a webhook's body.
func Sign(secret ferrule.Secret, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret.Reveal()))
	io.WriteString(mac, timestamp+".")
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}
