package server

import (
	"cmp"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// icons converts icons.
func icons(all []ferrule.Icon) (out []mcp.Icon) {
	for _, i := range all {
		out = append(out, mcp.Icon{Source: i.Source, MIMEType: i.MIME, Sizes: i.Sizes, Theme: mcp.IconTheme(i.Theme)})
	}
	return out
}

// annotations converts annotations.
func annotations(r *ferrule.Annotations) *mcp.Annotations {
	if r == nil {
		return nil
	}
	out := &mcp.Annotations{LastModified: r.Modified}
	for _, who := range r.Audience {
		out.Audience = append(out.Audience, mcp.Role(who))
	}
	if r.Priority != nil {
		out.Priority = *r.Priority
	}
	return out
}

// mcpResource converts a resource of a device.
func (v *view) mcpResource(device string, r *ferrule.Resource) *mcp.Resource {
	return &mcp.Resource{
		URI: v.scoped(device, r), Name: v.nameOf(device, r), Title: r.Title, Description: r.Text,
		MIMEType: r.MIME, Size: r.Size, Annotations: annotations(r.Annotations), Icons: icons(r.Icons),
	}
}

// mcpTemplate converts a resource template of a device.
func (v *view) mcpTemplate(device string, r *ferrule.Resource) *mcp.ResourceTemplate {
	return &mcp.ResourceTemplate{
		URITemplate: v.scoped(device, r), Name: v.nameOf(device, r), Title: r.Title, Description: r.Text,
		MIMEType: r.MIME, Annotations: annotations(r.Annotations), Icons: icons(r.Icons),
	}
}

// nameOf returns the name of a resource in this view.
func (v *view) nameOf(device string, r *ferrule.Resource) string {
	name := cmp.Or(r.Name, r.URI)
	if v.device == "" {
		name = device + " " + name
	}
	return name
}

// content converts a part of a device's result.
func (v *view) content(device string, c ferrule.Content) mcp.Content {
	about := annotations(c.Annotations)
	switch c.Type {
	case ferrule.ImageContent:
		return &mcp.ImageContent{Data: c.Data, MIMEType: c.MIME, Annotations: about}
	case ferrule.AudioContent:
		return &mcp.AudioContent{Data: c.Data, MIMEType: c.MIME, Annotations: about}
	case ferrule.ResourceContent:
		return &mcp.EmbeddedResource{Annotations: about, Resource: &mcp.ResourceContents{
			URI: v.scopedURI(device, c.URI), MIMEType: v.embeddedType(device, c), Text: c.Text, Blob: c.Data, Meta: v.documentMeta(device, c.URI, c),
		}}
	case ferrule.LinkContent:
		return v.link(device, c, about)
	}
	return &mcp.TextContent{Text: c.Text, Annotations: about}
}

// link converts a link to a resource.
func (v *view) link(device string, c ferrule.Content, about *mcp.Annotations) mcp.Content {
	to := &ferrule.Resource{}
	if c.Link != nil {
		to = c.Link
	}
	out := &mcp.ResourceLink{
		URI: v.scopedURI(device, cmp.Or(to.URI, c.URI)), Name: cmp.Or(to.Name, to.URI, c.URI), Title: to.Title, Description: to.Text,
		MIMEType: cmp.Or(to.MIME, c.MIME), Annotations: about, Icons: icons(to.Icons),
	}
	if to.Size > 0 {
		out.Size = &to.Size
	}
	if out.Annotations == nil {
		out.Annotations = annotations(to.Annotations)
	}
	return out
}
