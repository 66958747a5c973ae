package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// getTimeout is how long Home Assistant may take to send a file.
const getTimeout = 20 * time.Second

// Picture returns the picture of a camera or an image entity: the path is that of its proxy in the
// REST API. The connection signs it, so that the token is not sent a second time.
func (c *Client) Picture(ctx context.Context, conn *Conn, path string, limit int64) (data []byte, mime string, err error) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	var signed struct{ Path string }
	if err := conn.Request(ctx, "auth/sign_path", map[string]any{"path": path, "expires": 30}, &signed); err != nil {
		return nil, "", err
	}
	if !strings.HasPrefix(signed.Path, path+"?") {
		return nil, "", errors.New("Home Assistant signed another path")
	}
	data, err = c.get(ctx, signed.Path, limit)
	if err != nil {
		return nil, "", err
	}
	if mime = http.DetectContentType(data); !strings.HasPrefix(mime, "image/") {
		return nil, "", errors.New("Home Assistant sent something else than a picture")
	}
	return data, mime, nil
}

// get reads a file. Its errors do not have the address, which has a signature.
func (c *Client) get(ctx context.Context, path string, limit int64) ([]byte, error) {
	config, err := c.cfg.tls()
	if err != nil {
		return nil, err
	}
	client := &http.Client{
		Transport:     &http.Transport{DialContext: c.dial, TLSClientConfig: config, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(c.cfg.URL, "/")+path, nil)
	if err != nil {
		return nil, errors.New("the path cannot be part of an address")
	}
	resp, err := client.Do(req)
	var failed *url.Error
	switch {
	case errors.As(err, &failed):
		return nil, failed.Err
	case err != nil:
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("Home Assistant answered with status %d", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading: %w", err)
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("the picture has more than %d bytes", limit)
	}
	return data, nil
}
