package builtin

import (
	"context"
	"fmt"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Trust adopts and forgets devices.
type Trust interface {
	// Adopt lets agents use a pending device, under a name if that is not empty.
	Adopt(ctx context.Context, id, name string) (TrustOutput, error)
	// AdoptKind does so for all devices of its Kind on the same broker, now and later.
	AdoptKind(ctx context.Context, id, name string) (TrustOutput, error)
	// Forget removes everything stored about a device.
	Forget(id string) (TrustOutput, error)
	// ForgetKind does so for all devices of its Kind on the same broker, and undoes
	// AdoptKind.
	ForgetKind(id string) (TrustOutput, error)
}

// AdoptInput has the arguments of adopt_device.
type AdoptInput struct {
	Device string `json:"device" jsonschema:"ID of the device, or the code that it shows"`
	Name   string `json:"name,omitempty" jsonschema:"new ID of the device; default: as it is"`
	Kind   bool   `json:"kind,omitempty" jsonschema:"also adopt all devices of its Kind on its broker or Home Assistant, now and later"`
}

// TrustInput has the arguments of forget_device.
type TrustInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
	Kind   bool   `json:"kind,omitempty" jsonschema:"forget all devices of its Kind on its broker or Home Assistant"`
}

// TrustOutput is the result of adopt_device and forget_device.
type TrustOutput struct {
	Device string `json:"device" jsonschema:"ID of the device; its address if it has none yet"`
	Note   string `json:"note,omitempty" jsonschema:"what happens next"`
}

// AdoptDevice returns the tool adopt_device.
func AdoptDevice(trust Trust) Tool {
	const text = "Adopts a pending device, so that agents may use it."
	return Typed("adopt_device", text, ferrule.Changes, func(ctx context.Context, _ *ferrule.Call, in AdoptInput) (TrustOutput, error) {
		if in.Kind {
			return trust.AdoptKind(ctx, in.Device, in.Name)
		}
		return trust.Adopt(ctx, in.Device, in.Name)
	}).ForPeople()
}

// ForgetDevice returns the tool forget_device.
func ForgetDevice(trust Trust) Tool {
	const text = "Forgets a device: its name, trust and manifest. If it is still connected, it appears as new."
	return Typed("forget_device", text, ferrule.Changes, func(_ context.Context, _ *ferrule.Call, in TrustInput) (TrustOutput, error) {
		if in.Kind {
			return trust.ForgetKind(in.Device)
		}
		return trust.Forget(in.Device)
	}).ForPeople()
}

// FirstOf lists the first few names.
func FirstOf(names []string) string {
	const limit = 10
	if n := len(names); n > limit {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), n-limit)
	}
	return strings.Join(names, ", ")
}

// count returns a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
