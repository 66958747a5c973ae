package manpage_test

import (
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ops/manpage"
)

// TestPage checks that text cannot begin a macro or be changed by man.
func TestPage(t *testing.T) {
	var p manpage.Page
	p.Head("ferrule-up", 1, "2026-01-31", "1.2-3", "Run the gateway")
	p.Section("DESCRIPTION")
	p.Text(".hidden 'word' ~ \\ -\n'quoted\n\n  as it   is\n\nlast é")
	p.Item("--all", "Show ^ and `all`")
	const want = `.TH "FERRULE\-UP" 1 2026-01-31 "ferrule 1.2\-3" Ferrule
.SH NAME
ferrule\-up \- run the gateway
.SH DESCRIPTION
\&.hidden \(aqword\(aq \(ti \e \-
\&\(aqquoted
.PP
.nf
  as it   is
.fi
.PP
last \[u00E9]
.TP
\-\-all
Show \(ha and \(gaall\(ga
`
	if got := p.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDate(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	if date, err := manpage.Date(); err != nil || date != "1970-01-02" {
		t.Errorf("got %s, %v", date, err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "today")
	if _, err := manpage.Date(); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("got %v", err)
	}
}
