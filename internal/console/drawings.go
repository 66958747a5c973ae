package console

import (
	"encoding/json"
	"sync"
)

// maxDrawings limits how many drawn elements are kept.
const maxDrawings = 256

// drawings are elements that were drawn for open pages, by template and data. Pages that show
// the same data share them.
type drawings struct {
	mu  sync.Mutex
	all map[drawingKey]string
}

type drawingKey struct{ name, data string }

// draw returns an element. Its data is small, and all that is shown of it can be written as
// JSON.
func (d *drawings) draw(name string, data any) (string, error) {
	written, err := json.Marshal(data)
	if err != nil {
		return "", err
	}
	key := drawingKey{name, string(written)}
	d.mu.Lock()
	defer d.mu.Unlock() // pages that wait need the same element
	if text, ok := d.all[key]; ok {
		return text, nil
	}
	text, err := html(name, data)
	if err != nil {
		return "", err
	}
	if d.all == nil || len(d.all) >= maxDrawings {
		d.all = make(map[drawingKey]string)
	}
	d.all[key] = text
	return text, nil
}

// shared adds an element like element does, of data that many pages show.
func (u *updates) shared(id, name string, data any) error {
	text, err := u.drawn.draw(name, data)
	if err == nil && u.isNew(id, text) {
		u.html.WriteString(text)
	}
	return err
}
