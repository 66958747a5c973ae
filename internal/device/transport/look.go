package transport

import "sync"

// FirstLook is the time until a connector has reported the devices that were there when it began to
// watch. Connectors that know all their devices then embed one.
type FirstLook struct {
	done chan struct{}
	once *sync.Once
}

// NewFirstLook returns a FirstLook that has not ended.
func NewFirstLook() FirstLook { return FirstLook{make(chan struct{}), new(sync.Once)} }

// Looked returns a channel that is closed when the first look has ended.
func (l FirstLook) Looked() <-chan struct{} { return l.done }

// EndLook ends the first look. Later calls do nothing.
func (l FirstLook) EndLook() { l.once.Do(func() { close(l.done) }) }
