package xiaozhi

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

// VisionConfig tells where pictures come.
type VisionConfig struct {
	// URL is what devices are told: the handler's own, as they reach it.
	URL string
	// MaxPicture is how many bytes a picture may have; zero for a megabyte.
	MaxPicture int64
}

// Check tells what is wrong with the configuration.
func (c VisionConfig) Check() error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("want an http:// or https:// URL for pictures, got %q", c.URL)
	}
	if c.MaxPicture < 0 {
		return fmt.Errorf("want a picture of more bytes than nothing, got %d", c.MaxPicture)
	}
	return nil
}

// Vision is the HTTP handler that takes the pictures of cameras. A device sends one
// while its tool runs, and what it is answered is what the tool returns; so the
// picture goes into the result of the call that is under way.
//
//	call ─▶ device ─▶ camera ─POST─▶ Vision ─▶ result of the call
//	           ◀────── text ◀──────────┘
//
// Each connection has a token of its own, which is computed and not kept: only a
// call that is under way takes memory here.
type Vision struct {
	config VisionConfig
	key    []byte
	serial atomic.Uint64

	mu      sync.Mutex
	waiting map[string]*shots // by token
}

// shots are the pictures that came during a call.
type shots struct{ pictures []ferrule.Content }

// maxShots is how many pictures a call can have.
const maxShots = 4

// NewVision makes the handler.
func NewVision(cfg VisionConfig) (*Vision, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if cfg.MaxPicture == 0 {
		cfg.MaxPicture = 1 << 20
	}
	key := make([]byte, sha256.Size)
	rand.Read(key)
	return &Vision{config: cfg, key: key, waiting: make(map[string]*shots)}, nil
}

// Offer implements Pictures.
func (v *Vision) Offer(string) (url, token string) {
	serial := binary.BigEndian.AppendUint64(nil, v.serial.Add(1))
	return v.config.URL, base64.RawURLEncoding.EncodeToString(v.sign(serial))
}

// sign appends what only the key can make of serial.
func (v *Vision) sign(serial []byte) []byte {
	mac := hmac.New(sha256.New, v.key)
	mac.Write(serial)
	return append(serial[:8:8], mac.Sum(nil)[:16]...)
}

// genuine tells whether a token was made here.
func (v *Vision) genuine(token string) bool {
	data, err := base64.RawURLEncoding.DecodeString(token)
	return err == nil && len(data) == 24 && hmac.Equal(v.sign(data[:8]), data)
}

// Await implements Pictures.
func (v *Vision) Await(token string) (stop func() []ferrule.Content) {
	came := &shots{}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting[token] = came
	return func() []ferrule.Content {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.waiting[token] == came {
			delete(v.waiting, token)
		}
		return came.pictures
	}
}

// awaited tells whether a call is under way that may take another picture.
func (v *Vision) awaited(token string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	came := v.waiting[token]
	return came != nil && len(came.pictures) < maxShots
}

// deliver gives a picture to the call that is under way; false if there is none.
func (v *Vision) deliver(token string, picture ferrule.Content) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	came := v.waiting[token]
	if came == nil || len(came.pictures) >= maxShots {
		return false
	}
	came.pictures = append(came.pictures, picture)
	return true
}

// taken is what a device is answered, and its tool returns. The question was asked
// by whoever now sees the picture.
const taken = `{"success":true,"message":"the picture comes with this result"}`

// uploadTime is how long a picture may take.
const uploadTime = 30 * time.Second

// ServeHTTP implements http.Handler. What is not a picture that somebody waits for
// is not even read.
func (v *Vision) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "cameras send pictures here, with POST", http.StatusMethodNotAllowed)
		return
	case !v.genuine(token):
		http.Error(w, "the token is not known here", http.StatusUnauthorized)
		return
	case !v.awaited(token):
		http.Error(w, "nobody waits for a picture", http.StatusConflict)
		return
	}
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(uploadTime)) // where it cannot be set, the server has its own
	picture, err := v.read(w, r)
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		http.Error(w, fmt.Sprintf("a picture may have %d bytes", v.config.MaxPicture), http.StatusRequestEntityTooLarge)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case !v.deliver(token, picture):
		http.Error(w, "nobody waits for the picture any more", http.StatusConflict)
	default:
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, taken)
	}
}

// envelopeSize is what a request may have beside the picture.
const envelopeSize = 16 << 10

// read finds the picture in a request.
func (v *Vision) read(w http.ResponseWriter, r *http.Request) (ferrule.Content, error) {
	r.Body = http.MaxBytesReader(w, r.Body, v.config.MaxPicture+envelopeSize)
	parts, err := r.MultipartReader()
	if err != nil {
		return ferrule.Content{}, errors.New("want multipart/form-data with a part named file")
	}
	for {
		part, err := parts.NextPart()
		if err == io.EOF {
			return ferrule.Content{}, errors.New("there is no part named file")
		}
		if err != nil {
			return ferrule.Content{}, fmt.Errorf("the parts cannot be read: %w", err)
		}
		if part.FormName() == "file" {
			return v.picture(part)
		}
	}
}

// picture reads one. What it is, its bytes tell.
func (v *Vision) picture(part *multipart.Part) (ferrule.Content, error) {
	data, err := io.ReadAll(io.LimitReader(part, v.config.MaxPicture+1))
	if err != nil {
		return ferrule.Content{}, fmt.Errorf("the picture broke off: %w", err)
	}
	if int64(len(data)) > v.config.MaxPicture {
		return ferrule.Content{}, &http.MaxBytesError{Limit: v.config.MaxPicture}
	}
	mime := http.DetectContentType(data)
	if !strings.HasPrefix(mime, "image/") {
		return ferrule.Content{}, errors.New("that is no picture")
	}
	return ferrule.Content{Type: ferrule.ImageContent, MIME: mime, Data: data}, nil
}
