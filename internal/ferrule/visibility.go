package ferrule

// Visibility is what one caller is shown: what it may use, or may ask a person for. The
// zero value shows everything.
type Visibility struct {
	// Shows reports whether the caller is shown a tool of a device, or what the Tool
	// stands for in another operation. If it is nil, everything is shown. It is called
	// concurrently.
	Shows func(dev *Device, op Operation, tool *Tool) bool
	// AllDevices is set if the caller is shown devices even if it may use nothing of them.
	AllDevices bool
	// Version changes whenever Shows may return something else.
	Version string
}

// Tool reports whether a tool of a device is shown.
func (v Visibility) Tool(dev *Device, tool *Tool) bool {
	return v.Shows == nil || v.Shows(dev, CallTool, tool)
}

// Item reports whether a resource or a prompt of a device is shown.
func (v Visibility) Item(dev *Device, m *Manifest, op Operation, name string) bool {
	if v.Shows == nil {
		return true
	}
	tool := m.ToolFor(op, name)
	return tool != nil && v.Shows(dev, op, tool)
}

// anything stands for what a device without tools may offer later.
var anything = &Tool{Name: "*", Effect: Reads}

// Device reports whether a device is shown. An agent is shown a device if it may use
// anything of it. If nothing is known that it could use, reading decides.
func (v Visibility) Device(dev *Device, m *Manifest) bool {
	if v.Shows == nil || v.AllDevices {
		return true
	}
	empty := true
	if m != nil {
		for i := range m.Tools {
			t := &m.Tools[i]
			if t.Quarantine != "" || t.UserOnly {
				continue
			}
			if empty = false; v.Shows(dev, CallTool, t) {
				return true
			}
		}
		for i := range m.Resources {
			if empty = false; v.Item(dev, m, ReadResource, m.Resources[i].URI) {
				return true
			}
		}
		for i := range m.Prompts {
			if empty = false; v.Item(dev, m, GetPrompt, m.Prompts[i].Name) {
				return true
			}
		}
	}
	return empty && v.Shows(dev, CallTool, anything)
}
