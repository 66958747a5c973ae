package console

import (
	"encoding/base64"
	"html/template"
	"net/http"
	"slices"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// resourcesRoutes adds the tab with the resources of a device.
func (c *Console) resourcesRoutes() {
	c.page("GET /devices/{device}/resources", c.resourcesPage)
}

// resourcesView is what the tab shows.
type resourcesView struct {
	deviceFrame
	Resources []ferrule.Resource
	// URI is the resource that was read, and Read is what it has. Failed is why it could not
	// be read.
	URI    string
	Read   []contentView
	Took   ferrule.Duration
	Failed *ferrule.Error
}

// contentView is a part of an answer as a page shows it: a picture, a text, or how long it
// is.
type contentView struct {
	Picture template.URL
	Text    string
	MIME    string
	Cut     bool
	Size    int
}

// Limits of an answer on a page, in bytes.
const (
	maxPicture   = 4 << 20
	maxShownText = 64 << 10
)

// pictures are the types of images that a page shows. Others, such as SVG, may have scripts.
var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// contentOf returns a part of an answer as a page shows it. A picture must be what its type
// says.
func contentOf(c ferrule.Content) contentView {
	v := contentView{MIME: ferrule.Clean(c.MIME, ferrule.MaxWord), Size: len(c.Data) + len(c.Text)}
	if len(c.Data) > 0 && len(c.Data) <= maxPicture {
		if found := http.DetectContentType(c.Data); slices.Contains(pictures, found) {
			v.Picture = template.URL("data:" + found + ";base64," + base64.StdEncoding.EncodeToString(c.Data))
			return v
		}
	}
	v.Text = ferrule.Clean(c.Text, maxShownText)
	v.Cut = len(c.Text) > maxShownText
	return v
}

func (c *Console) resourcesPage(v *visit) error {
	f, err := c.openDevice(v, "Resources")
	if err != nil {
		return err
	}
	p := resourcesView{deviceFrame: f, URI: v.r.URL.Query().Get("uri")}
	out, err := c.api.Resources(v.ctx(), v.who, api.ResourcesInput{Device: f.Device.ID})
	if err != nil {
		return err
	}
	p.Resources = out.Resources
	status := http.StatusOK
	if p.URI != "" {
		read, err := c.api.ReadResource(v.ctx(), v.who, api.ReadResourceInput{Device: f.Device.ID, URI: p.URI})
		if err != nil {
			p.Failed = ferrule.AsError(err)
		}
		p.URI, p.Took = ferrule.Clean(p.URI, ferrule.MaxURI), read.Took
		for _, part := range read.Content {
			p.Read = append(p.Read, contentOf(part))
		}
	}
	return c.renderDevice(v, status, f, page{}, "resources", p)
}
