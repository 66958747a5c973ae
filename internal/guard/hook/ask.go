package hook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ferrulehq/ferrule/internal/program"
)

func newAsker(c Config) asker {
	if c.URL == "" {
		return command{c.Command}
	}
	return &service{cfg: c, client: http.Client{
		Transport: &http.Transport{MaxConnsPerHost: c.Parallel, MaxIdleConns: c.Parallel, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 16 << 10, DisableCompression: true},
		// A redirect could lead to where the owner did not want calls to be shown.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// command is a program. It is started for each message.
type command struct{ program.Command }

func (c command) ask(ctx context.Context, message []byte) ([]byte, error) {
	return c.Run(ctx, append(message, '\n'), maxAnswer)
}

// service is a web service.
type service struct {
	cfg    Config
	client http.Client
}

func (s *service) ask(ctx context.Context, message []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.URL, bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "ferrule")
	if s.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.cfg.Token.Reveal())
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode/100 != 2:
		return nil, fmt.Errorf("it answered %s", resp.Status)
	}
	return body, nil
}
