package ferrule

import "testing"

// TestWordsOfDevices checks that the words of a device are marked as its own, and those of the
// gateway are not.
func TestWordsOfDevices(t *testing.T) {
	for want, p := range map[string]Progress{
		"lamp says: approved":                  {Message: "approved", Said: true},
		"lamp says: approved (1 of 2)":         {Message: "approved", Said: true, Done: 1, Total: 2},
		"waiting for approval":                 {Message: "waiting for approval", Asked: true},
		"working (1 of 4)":                     {Done: 1, Total: 4},
		"":                                     {},
		"waiting for lamp: 1 ahead (0.5 of 1)": {Message: "waiting for lamp: 1 ahead", Done: 0.5, Total: 1},
	} {
		if got := p.Text("lamp"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for want, e := range map[string]*Error{
		"blink failed on lamp. lamp says: burnt out: replace it": Errorf(Failed, "blink failed on lamp: burnt out: replace it"),
		"lamp refused blink. lamp says: denied":                  Errorf(Refused, "lamp refused blink: denied"),
		"blink of lamp was denied by person:maria":               Errorf(Denied, "blink of lamp was denied by person:maria"),
		"Home Assistant refused blink for lamp: busy":            Errorf(Refused, "Home Assistant refused blink for lamp: busy"),
		"lamp refused": Errorf(Refused, "lamp refused"),
	} {
		if got := e.Attributed("lamp"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
