package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Reloaded is what a reload of the configuration did, one line each, starting with the
// key in the configuration. It contains no secrets.
type Reloaded struct {
	// Applied is what changed.
	Applied []string `json:"applied"`
	// Restart is what changes when the gateway is started again.
	Restart []string `json:"restart"`
	// Problems is what the overlays make unusable, and which of them apply to no device.
	Problems []string `json:"problems,omitempty"`
	// Read is the configuration file and the directory of overlays that were read.
	Read []string `json:"read,omitempty"`
}

// reloadReply is the answer to a reload.
type reloadReply struct {
	Reloaded
	Error *ferrule.Error `json:"error,omitempty"`
}

func (s *Server) reload(w http.ResponseWriter, _ *http.Request) {
	var answer reloadReply
	var err error
	if answer.Reloaded, err = s.parts.Reload(); err != nil {
		answer.Error = ferrule.AsError(err)
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}

// Reload makes the gateway read its configuration again.
func (c *Client) Reload(ctx context.Context) (Reloaded, error) {
	resp, err := c.send(ctx, http.MethodPost, "/reload", nil)
	if err != nil {
		return Reloaded{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Reloaded{}, fmt.Errorf("%w: it does not reload (%s)", ErrVersion, resp.Status)
	}
	var answer reloadReply
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&answer); err != nil {
		return Reloaded{}, fmt.Errorf("connection to the gateway lost: %w", err)
	}
	if answer.Error != nil {
		return Reloaded{}, answer.Error
	}
	return answer.Reloaded, nil
}
