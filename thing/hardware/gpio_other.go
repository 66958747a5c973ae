//go:build !linux

package hardware

// Line is an open line of a GPIO chip.
type Line struct{ config LineConfig }

// OpenLine returns ErrSystem.
func OpenLine(string, int, LineConfig) (*Line, error) { return nil, ErrSystem }

// DescribeChip returns ErrSystem.
func DescribeChip(string) (Chip, error) { return Chip{}, ErrSystem }

// Mode returns the line's mode.
func (l *Line) Mode() Mode { return l.config.Mode }

// Read returns ErrSystem.
func (*Line) Read() (bool, error) { return false, ErrSystem }

// Write returns ErrSystem.
func (*Line) Write(bool) error { return ErrSystem }

// Drive returns ErrSystem.
func (*Line) Drive(bool) error { return ErrSystem }

// SetMode returns ErrSystem.
func (*Line) SetMode(Mode) error { return ErrSystem }

// Edges returns ErrSystem.
func (*Line) Edges() (EdgeCount, error) { return EdgeCount{}, ErrSystem }

// Close returns nil.
func (*Line) Close() error { return nil }
