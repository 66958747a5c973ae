package doctor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ferrulehq/ferrule/internal/local/terminal"
)

// Report is what `ferrule doctor` prints. Its JSON keys are stable.
type Report struct {
	Version  string    `json:"version"`
	Wrong    int       `json:"wrong"`
	Notes    int       `json:"notes"`
	Findings []Finding `json:"findings"`
}

// Counted returns r with the numbers of its findings.
func (r Report) Counted() Report {
	r.Wrong, r.Notes = 0, 0
	for _, f := range r.Findings {
		switch f.State {
		case Wrong:
			r.Wrong++
		case Note:
			r.Notes++
		}
	}
	return r
}

// Err returns an error if something is wrong.
func (r Report) Err() error {
	switch n := r.Counted().Wrong; n {
	case 0:
		return nil
	case 1:
		return errors.New("1 thing is wrong")
	default:
		return fmt.Errorf("%d things are wrong", n)
	}
}

// Print returns the report for a terminal. What is fine is one line, unless all is set.
func (r Report) Print(all bool, style terminal.Style) string {
	var b strings.Builder
	problems, fine := Summary(r.Findings)
	if all {
		problems, fine = r.Findings, ""
	}
	area := ""
	for _, f := range problems {
		if all && f.Area != area {
			area = f.Area
			fmt.Fprintln(&b, style(terminal.Bold, area))
		}
		f.print(&b, style)
	}
	if fine != "" {
		Finding{State: Fine, Found: fine}.print(&b, style)
	}
	if r.Err() == nil {
		fmt.Fprintln(&b, "\nNothing is wrong.")
	}
	return b.String()
}

func (f Finding) print(b *strings.Builder, style terminal.Style) {
	styles := map[Health]string{Fine: terminal.Green, Note: terminal.Bold, Wrong: terminal.Red}
	state := style(styles[f.State], fmt.Sprintf("%-5s", f.State))
	fmt.Fprintf(b, "  %s  %s\n", state, strings.ReplaceAll(f.Found, "\n", "\n         "))
	if f.Next != "" {
		fmt.Fprintf(b, "         %s\n", style(terminal.Faint, "→ "+f.Next))
	}
}
