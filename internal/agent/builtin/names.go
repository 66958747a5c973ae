package builtin

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Names renames and labels devices.
type Names interface {
	// Rename gives a device another ID, and keeps the old one as an alias.
	Rename(id, name string) error
	// Label sets and removes labels, and returns those that the device then has.
	Label(id string, set map[string]string, remove []string) (map[string]string, error)
}

// RenameInput has the arguments of rename_device.
type RenameInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
	Name   string `json:"name" jsonschema:"its new ID"`
}

// RenameOutput is the result of rename_device.
type RenameOutput struct {
	Device string `json:"device" jsonschema:"new ID"`
	Alias  string `json:"alias" jsonschema:"earlier ID, which can still be used"`
}

// RenameDevice returns the tool rename_device.
func RenameDevice(names Names) Tool {
	const text = "Renames a device. Its earlier ID can still be used."
	return Typed("rename_device", text, ferrule.Changes, func(_ context.Context, _ *ferrule.Call, in RenameInput) (RenameOutput, error) {
		return RenameOutput{in.Name, in.Device}, names.Rename(in.Device, in.Name)
	}).ForPeople()
}

// LabelInput has the arguments of label_device.
type LabelInput struct {
	Device string            `json:"device" jsonschema:"ID of the device"`
	Set    map[string]string `json:"set,omitempty" jsonschema:"labels to set"`
	Remove []string          `json:"remove,omitempty" jsonschema:"keys of labels to remove"`
}

// LabelOutput is the result of label_device.
type LabelOutput struct {
	Device string            `json:"device"`
	Labels map[string]string `json:"labels" jsonschema:"all labels of the device"`
}

// LabelDevice returns the tool label_device.
func LabelDevice(names Names) Tool {
	const text = "Sets and removes labels of a device, such as room=kitchen. Searches find devices by them."
	return Typed("label_device", text, ferrule.Changes, func(_ context.Context, _ *ferrule.Call, in LabelInput) (LabelOutput, error) {
		labels, err := names.Label(in.Device, in.Set, in.Remove)
		return LabelOutput{in.Device, labels}, err
	}).ForPeople()
}
