// Package templates has the icons that the console shares with its panels.
package templates

import (
	_ "embed"
	"strings"
)

//go:embed icons.html
var icons string

// Icons returns the icons as an SVG sprite.
func Icons() string {
	from, to := strings.Index(icons, "<svg"), strings.LastIndex(icons, "</svg>")
	if from < 0 || to < from {
		return ""
	}
	return icons[from : to+len("</svg>")]
}
