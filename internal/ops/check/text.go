package check

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Printer runs a check and writes its progress and its report.
type Printer struct {
	Out io.Writer
	// Live reports that Out is a terminal on which a line can be redrawn.
	Live bool
	// Style adds a style to a text, which is an ANSI code.
	Style func(style, text string) string
	// JSON prints the report as JSON, instead of a text for people; nil for the text.
	JSON func(v any) error
	// JUnit is the path of a JUnit file to write in addition; empty for none.
	JUnit string
}

// The styles of texts.
var styles = map[State]string{Passed: "32", Failed: "31", Skipped: "2"}

// FoundError is the error of a check that is done, and whose score is not 100.
type FoundError struct{ text string }

func (e FoundError) Error() string { return e.text }

// Run runs a check. It returns a FoundError if the score is not 100.
func (p Printer) Run(ctx context.Context, target Target, o Options) error {
	if p.JSON == nil {
		o.OnStep = p.onStep
	}
	report, err := Run(ctx, target, o)
	if p.Live && p.JSON == nil {
		fmt.Fprint(p.Out, "\r\x1b[K")
	}
	if ctx.Err() != nil {
		return errors.New("the check was interrupted, so there is no report")
	}
	if err != nil {
		return err
	}
	if p.JSON != nil {
		err = p.JSON(report)
	} else {
		p.report(report)
	}
	if err == nil && p.JUnit != "" {
		var data []byte
		if data, err = junit(report); err == nil {
			err = os.WriteFile(p.JUnit, data, 0o644)
		}
	}
	if err == nil && report.Score < 100 {
		err = FoundError{fmt.Sprintf("%s has %s", target, summary(report))}
	}
	return err
}

// onStep shows a step.
func (p Printer) onStep(number, count int, s Step) {
	switch {
	case s.State == Running && s.Detail == "" && p.Live:
		fmt.Fprintf(p.Out, "\r  %d of %d: %s …\x1b[K", number, count, s.Name)
	case s.State == Running && s.Detail != "":
		fmt.Fprintf(p.Out, "%s: %s.\n", s.Name, s.Detail)
	case s.State == Running:
	default:
		if p.Live {
			fmt.Fprint(p.Out, "\r\x1b[K")
		}
		fmt.Fprintf(p.Out, "  %s  %-16s  %s\n", p.Style(styles[s.State], fmt.Sprintf("%-7s", s.State)), s.Name, s.Detail)
	}
}

// report writes the findings and the score.
func (p Printer) report(r *Report) {
	for _, f := range r.Findings {
		state := Failed
		if f.Severity == Note {
			state = Skipped
		}
		fmt.Fprintf(p.Out, "\n%s  %s  %s\n", p.Style(styles[state], string(f.Severity)), f.ID, f.Title)
		fmt.Fprintf(p.Out, "    %s%s\n", f.Detail, times(f.Count))
		if f.Sent != "" {
			fmt.Fprintf(p.Out, "    sent      %s\n", f.Sent)
		}
		if f.Received != "" {
			fmt.Fprintf(p.Out, "    received  %s\n", f.Received)
		}
		fmt.Fprintf(p.Out, "    fix       %s\n    see       %s\n", f.Fix, f.Page)
	}
	fmt.Fprintf(p.Out, "\nScore %d of 100: %s, %s.\n", r.Score, summary(r), fmt.Sprintf("in %.0f s", r.Took))
}

func times(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" (%d times)", n)
}

// summary counts the findings of a report by severity.
func summary(r *Report) string {
	count := make(map[Severity]int)
	for _, f := range r.Findings {
		count[f.Severity]++
	}
	var parts []string
	for _, s := range []struct {
		severity  Severity
		one, many string
	}{{Fatal, "fatal fault", "fatal faults"}, {Fault, "fault", "faults"}, {Weakness, "weakness", "weaknesses"}, {Note, "note", "notes"}} {
		switch n := count[s.severity]; n {
		case 0:
		case 1:
			parts = append(parts, "1 "+s.one)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, s.many))
		}
	}
	if len(parts) == 0 {
		return "nothing found"
	}
	return strings.Join(parts, ", ")
}

// The elements of a JUnit file.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     float64     `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Time    float64       `xml:"time,attr"`
		Failure *junitFailure `xml:"failure,omitempty"`
		Skipped *junitSkipped `xml:"skipped,omitempty"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
	junitSkipped struct {
		Message string `xml:"message,attr"`
	}
)

// junit returns a report as a JUnit file: one test case for each step. Notes are not failures.
func junit(r *Report) ([]byte, error) {
	suite := junitSuite{Name: "ferrule check " + r.Target, Tests: len(r.Steps), Time: r.Took}
	for _, s := range r.Steps {
		c := junitCase{Name: s.Name, Class: "ferrule." + r.Protocol, Time: s.Took, Out: s.Detail}
		for _, f := range r.Findings {
			switch {
			case f.step != s.Name:
			case f.Severity == Note:
				c.Out += fmt.Sprintf("\n%s: %s: %s", f.ID, f.Title, f.Detail)
			case c.Failure == nil:
				c.Failure = &junitFailure{Message: f.Title, Type: f.ID, Text: junitText(f)}
			default:
				c.Failure.Text += "\n\n" + junitText(f)
			}
		}
		switch {
		case c.Failure != nil:
			suite.Failures++
		case s.State == Failed: // a finding of another step is the reason
			suite.Failures++
			c.Failure = &junitFailure{Message: cmp.Or(s.Detail, "the step failed"), Type: "ferrule." + r.Protocol}
		case s.State == Skipped:
			suite.Skipped++
			c.Skipped = &junitSkipped{s.Detail}
		}
		suite.Cases = append(suite.Cases, c)
	}
	data, err := xml.MarshalIndent(suite, "", "  ")
	return append([]byte(xml.Header), append(data, '\n')...), err
}

func junitText(f Finding) string {
	return fmt.Sprintf("%s: %s\n%s%s\nsent: %s\nreceived: %s\nfix: %s\nsee: %s", f.ID, f.Title, f.Detail, times(f.Count), f.Sent, f.Received, f.Fix, f.Page)
}
