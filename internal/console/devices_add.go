package console

import (
	"net/http"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// addDevice is what the page on adding a device shows.
type addDevice struct {
	api.Listeners
	CSRF  string
	Owner bool
	// New are devices that were found and wait to be adopted.
	New []deviceItem
}

// addDevicePage explains how to connect a device, and shows what the gateway listens for now.
func (c *Console) addDevicePage(v *visit) error {
	listeners, err := c.api.Listeners(v.ctx(), v.who, api.NoInput{})
	if err != nil {
		return err
	}
	found, err := c.api.Devices(v.ctx(), v.who, api.DevicesInput{Trust: string(ferrule.TrustPending), Limit: maxNeeds})
	if err != nil {
		return err
	}
	list := &deviceList{CSRF: v.csrf, Who: v.who}
	p := addDevice{Listeners: listeners, CSRF: v.csrf, Owner: list.IsOwner(), New: c.items(v.ctx(), list, found.Rows, false)}
	return c.render(v, http.StatusOK, page{Title: "Add a device", Section: "devices"}, "devices-add", p)
}
