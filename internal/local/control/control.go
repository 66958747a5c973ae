// Package control connects the commands of a user to their running gateway. The
// gateway listens on a Unix socket in its data directory; Server is its end, and
// Client is the end of a command or of a `ferrule mcp` process.
//
//	command, ferrule mcp -> Client -> control socket -> Server -> pipeline, fleet
//
// The protocol is HTTP with JSON. Answers are streams of JSON lines:
//
//	POST /call            runs a Call; lines with progress and questions, then one
//	                      with the result or the error
//	POST /answer          answers a question of a call
//	GET  /trace?device=ID frames to and from a device
//	GET  /watch?device=ID events of a device, or of all devices without an ID;
//	                      readings=true adds its readings, signal=NAME limits them
//	                      to one signal, events=false leaves the events out
//	POST /fleet           requests devices, then streams the devices that an agent may
//	                      use, with what it may use of them, and every change to that
//	GET  /journal         the journals of all nodes, oldest lines first, then an end
//	                      line; follow=true goes on with new lines
//	POST /reload          reads the configuration again; what changed, and what needs
//	                      a restart
//	POST /handover        asks a gateway that was started by `ferrule mcp` to exit,
//	                      so that the caller can take over
//
// Trace, watch, fleet and a followed journal last until the caller disconnects.
//
// The socket has no authentication: its file mode decides who may connect, and a
// process that can connect may do everything. The packaged service has a second socket,
// which members of its group may open. Calls are recorded with the user at the other end
// of the socket, where the system tells.
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

// reply is one line of an answer. An error, a result or an end is the last line.
type reply struct {
	Progress *ferrule.Progress     `json:"progress,omitempty"`
	Question *question             `json:"question,omitempty"`
	Trace    *ferrule.Trace        `json:"trace,omitempty"`
	Event    *ferrule.Event        `json:"event,omitempty"`
	Reading  *ferrule.Reading      `json:"reading,omitempty"`
	Missed   int                   `json:"missed,omitempty"` // events and readings dropped before the next line
	Fleet    *fleetUpdate          `json:"fleet,omitempty"`
	Journal  *ferrule.JournalLines `json:"journal,omitempty"`
	End      bool                  `json:"end,omitempty"`
	Result   *ferrule.Result       `json:"result,omitempty"`
	Error    *ferrule.Error        `json:"error,omitempty"`
}

// DeviceRequest is a device that a `ferrule mcp` process wants the running gateway
// to connect.
type DeviceRequest struct {
	Transport string `json:"transport"`
	Address   string `json:"address"`
	Name      string `json:"name,omitempty"`
	Pending   bool   `json:"pending,omitempty"`
	// Baud and Reset are for serial ports.
	Baud  int    `json:"baud,omitempty"`
	Reset string `json:"reset,omitempty"`
}

// maxBody limits the size of a request, in bytes.
const maxBody = 1 << 20

// maxPath is a socket path length that every operating system accepts.
const maxPath = 100

// SocketPath returns the path of the control socket for a data directory. The
// socket is in that directory. If its path would be too long, SocketPath creates a
// private directory with a short name in the temporary directory instead.
func SocketPath(data string) (string, error) {
	path, dir, err := socketPath(data)
	if err != nil || dir == "" {
		return path, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return path, err
	}
	return path, checkPrivate(dir)
}

// FindSocket is like SocketPath, but creates no directory.
func FindSocket(data string) (string, error) {
	path, dir, err := socketPath(data)
	if err != nil || dir == "" {
		return path, err
	}
	if err := checkPrivate(dir); !errors.Is(err, os.ErrNotExist) {
		return path, err
	}
	return path, nil
}

// socketPath returns the path of the socket, and its directory if that is not the
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
		return "", "", fmt.Errorf("socket path %s is too long; set TMPDIR to a shorter path", path)
	}
	return path, dir, nil
}

// checkPrivate returns an error if other users can access dir. They can write to
// its parent, so dir may have been created by one of them.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !closedTo(info, 0o077) {
		return fmt.Errorf("%s is accessible to other users; remove it", dir)
	}
	return nil
}
