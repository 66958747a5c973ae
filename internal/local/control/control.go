// Package control is the local way into a running gateway: a socket in the file
// system, for the commands of the same user. It speaks HTTP with JSON:
//
//	POST /call            a Call; the answer is one line a word of progress or a
//	                      question, then one line with the result or the error
//	POST /answer          the answer to a question
//	GET  /trace?device=ID one line for each thing seen on the wire, until the
//	                      caller goes away
//	GET  /watch?device=ID one line for each thing that happens to a device or that
//	                      it says, or to any device where none is named, until
//	                      the caller goes away; with readings=true what the
//	                      device measures as well, or of it one signal=NAME, and
//	                      with events=false nothing else
//	POST /fleet           devices that the caller asks for; the answer is one
//	                      line for each device and each change to it, until the
//	                      caller goes away
//	GET  /journal         one line for each piece of the journals of all nodes,
//	                      oldest first, and one at the end; with follow=true
//	                      what comes as well, until the caller goes away
//	POST /yield           the gateway ends, if it was started for an agent, so
//	                      that the caller can become it
//
// What crosses is calls, the view of the fleet and what happens to it: a process
// that speaks MCP with an agent of its own needs no more.
//
// Who can open the socket can do everything: the file system decides.
package control

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// reply is one line of an answer. An error, a result or an end is the last.
type reply struct {
	Progress *ferrule.Progress     `json:"progress,omitempty"`
	Question *question             `json:"question,omitempty"`
	Trace    *ferrule.Trace        `json:"trace,omitempty"`
	Event    *ferrule.Event        `json:"event,omitempty"`
	Reading  *ferrule.Reading      `json:"reading,omitempty"`
	Missed   int                   `json:"missed,omitempty"` // how many events and readings before the next were dropped
	News     *news                 `json:"news,omitempty"`
	Journal  *ferrule.JournalLines `json:"journal,omitempty"`
	End      bool                  `json:"end,omitempty"`
	Result   *ferrule.Result       `json:"result,omitempty"`
	Error    *ferrule.Error        `json:"error,omitempty"`
}

// Wish is a device that somebody asks for.
type DeviceRequest struct {
	Transport string `json:"transport"`
	Address   string `json:"address"`
	Name      string `json:"name,omitempty"`
	Pending   bool   `json:"pending,omitempty"`
	// What follows is about serial ports.
	Baud  int    `json:"baud,omitempty"`
	Reset string `json:"reset,omitempty"`
}

// maxBody is the size of the largest request.
const maxBody = 1 << 20

// maxPath is the longest path that a socket can have on every system.
const maxPath = 100

// SocketPath is where the gateway of a data directory listens: in that
// directory, or, where that path is too long, in a private directory with a
// short name under the one for temporary files.
func SocketPath(data string) (string, error) {
	path, dir, err := socketPath(data)
	if err != nil || dir == "" {
		return path, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return path, err
	}
	return path, private(dir)
}

// FindSocket is SocketPath for those who only look: it makes no directory.
func FindSocket(data string) (string, error) {
	path, dir, err := socketPath(data)
	if err != nil || dir == "" {
		return path, err
	}
	if err := private(dir); !errors.Is(err, os.ErrNotExist) {
		return path, err
	}
	return path, nil
}

// socketPath is where the socket is, and the directory around it that is not the
// data directory.
func socketPath(data string) (path, dir string, err error) {
	if data, err = filepath.Abs(data); err != nil {
		return "", "", err
	}
	if path = filepath.Join(data, "control.sock"); len(path) <= maxPath {
		return path, "", nil
	}
	sum := sha256.Sum256([]byte(data))
	dir = filepath.Join(os.TempDir(), "ferrule-"+hex.EncodeToString(sum[:8]))
	if path = filepath.Join(dir, "control.sock"); len(path) > maxPath {
		return "", "", fmt.Errorf("%s is too long for a socket; set TMPDIR to a shorter path", path)
	}
	return path, dir, nil
}

// private makes sure that nobody else can reach into a directory: others can
// write to the directory around it.
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !ours(info) {
		return fmt.Errorf("%s is open to others; remove it", dir)
	}
	return nil
}
