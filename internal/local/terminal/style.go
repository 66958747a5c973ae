package terminal

// Style adds a style to text, if the output shows styles.
type Style func(style, text string) string

// The styles of text, as ANSI codes.
const (
	Bold  = "1"
	Green = "32"
	Red   = "31"
	Faint = "2"
)
