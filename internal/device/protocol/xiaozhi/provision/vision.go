package provision

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// VisionConfig is the configuration of Vision.
type VisionConfig struct {
	// URL is the URL of the handler, as devices reach it.
	URL string
	// MaxPicture is the largest picture in bytes; 0 for 1 MiB.
	MaxPicture int64
}

// Check returns an error if the configuration is invalid.
func (c VisionConfig) Check() error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("the URL for pictures must start with http:// or https://, got %q", c.URL)
	}
	if c.MaxPicture < 0 {
		return fmt.Errorf("the limit for pictures must not be negative, got %d", c.MaxPicture)
	}
	return nil
}

// Vision is the HTTP handler for the pictures of cameras. It implements
// xiaozhi.Pictures. A device uploads a picture while its tool runs, and the tool returns
// the response to the upload. So the picture becomes part of the call's result.
//
//	call ─▶ device ─▶ camera ─POST─▶ Vision ─▶ result of the call
//	           ◀────── text ◀──────────┘
//
// Each connection has its own token, which is computed and not stored: only a pending
// call takes memory.
type Vision struct {
	config VisionConfig
	key    []byte
	serial atomic.Uint64

	mu      sync.Mutex
	waiting map[string]*upload // by token
}

// upload is the pictures of one call.
type upload struct{ pictures []ferrule.Content }

// maxPictures is how many pictures a call can have.
const maxPictures = 4

// NewVision returns the handler.
func NewVision(cfg VisionConfig) (*Vision, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if cfg.MaxPicture == 0 {
		cfg.MaxPicture = 1 << 20
	}
	key := make([]byte, sha256.Size)
	rand.Read(key)
	return &Vision{config: cfg, key: key, waiting: make(map[string]*upload)}, nil
}

// Offer implements xiaozhi.Pictures.
func (v *Vision) Offer(string) (url, token string) {
	serial := binary.BigEndian.AppendUint64(nil, v.serial.Add(1))
	return v.config.URL, base64.RawURLEncoding.EncodeToString(v.sign(serial))
}

// sign appends a MAC to serial.
func (v *Vision) sign(serial []byte) []byte {
	mac := hmac.New(sha256.New, v.key)
	mac.Write(serial)
	return append(serial[:8:8], mac.Sum(nil)[:16]...)
}

// genuine reports whether this Vision issued the token.
func (v *Vision) genuine(token string) bool {
	data, err := base64.RawURLEncoding.DecodeString(token)
	return err == nil && len(data) == 24 && hmac.Equal(v.sign(data[:8]), data)
}

// Await implements xiaozhi.Pictures.
func (v *Vision) Await(token string) (stop func() []ferrule.Content) {
	u := &upload{}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting[token] = u
	return func() []ferrule.Content {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.waiting[token] == u {
			delete(v.waiting, token)
		}
		return u.pictures
	}
}

// awaited reports whether a call waits for another picture.
func (v *Vision) awaited(token string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	u := v.waiting[token]
	return u != nil && len(u.pictures) < maxPictures
}

// deliver adds a picture to the waiting call, and reports whether there is one.
func (v *Vision) deliver(token string, picture ferrule.Content) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	u := v.waiting[token]
	if u == nil || len(u.pictures) >= maxPictures {
		return false
	}
	u.pictures = append(u.pictures, picture)
	return true
}

// accepted is the response to an upload, which the tool returns.
const accepted = `{"success":true,"message":"the picture comes with this result"}`

// uploadTime is how long an upload may take.
const uploadTime = 30 * time.Second

// ServeHTTP implements http.Handler. It reads the body only if a call waits for it.
func (v *Vision) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "cameras upload pictures here with POST", http.StatusMethodNotAllowed)
		return
	case !v.genuine(token):
		http.Error(w, "unknown token", http.StatusUnauthorized)
		return
	case !v.awaited(token):
		http.Error(w, "no call waits for a picture", http.StatusConflict)
		return
	}
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(uploadTime)) // if unsupported, the timeout of the server counts
	picture, err := v.read(w, r)
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		http.Error(w, fmt.Sprintf("picture is too large, limit is %d bytes", v.config.MaxPicture), http.StatusRequestEntityTooLarge)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case !v.deliver(token, picture):
		http.Error(w, "the call has ended", http.StatusConflict)
	default:
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, accepted)
	}
}

// envelopeSize is how many bytes a request may have besides the picture.
const envelopeSize = 16 << 10

// read returns the picture in a request.
func (v *Vision) read(w http.ResponseWriter, r *http.Request) (ferrule.Content, error) {
	r.Body = http.MaxBytesReader(w, r.Body, v.config.MaxPicture+envelopeSize)
	parts, err := r.MultipartReader()
	if err != nil {
		return ferrule.Content{}, errors.New("must be multipart/form-data with a part named file")
	}
	for {
		part, err := parts.NextPart()
		if err == io.EOF {
			return ferrule.Content{}, errors.New("part named file is missing")
		}
		if err != nil {
			return ferrule.Content{}, fmt.Errorf("reading the form: %w", err)
		}
		if part.FormName() == "file" {
			return v.picture(part)
		}
	}
}

// picture reads a picture. Its content decides the type, not its header.
func (v *Vision) picture(part *multipart.Part) (ferrule.Content, error) {
	data, err := io.ReadAll(io.LimitReader(part, v.config.MaxPicture+1))
	if err != nil {
		return ferrule.Content{}, fmt.Errorf("reading the picture: %w", err)
	}
	if int64(len(data)) > v.config.MaxPicture {
		return ferrule.Content{}, &http.MaxBytesError{Limit: v.config.MaxPicture}
	}
	mime := http.DetectContentType(data)
	if !strings.HasPrefix(mime, "image/") {
		return ferrule.Content{}, errors.New("not a picture")
	}
	return ferrule.Content{Type: ferrule.ImageContent, MIME: mime, Data: data}, nil
}
