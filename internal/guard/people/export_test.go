package people

import (
	"net/http"
	"net/http/httptest"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Begin logs somebody in, without a link.
func (p *People) Begin(name string) {
	p.begin(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/login", nil), ferrule.RoleOwner.LoggedIn(name), ferrule.RoleOwner, 0)
}
