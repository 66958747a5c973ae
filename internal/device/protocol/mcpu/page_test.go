package mcpu

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestPage checks the numbers of the page about MCP/U. Package sim runs its transcripts.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/reference/mcpu.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	var waits []string
	for wait, i := infoFirst, 0; i < infoTries; i++ {
		waits = append(waits, strings.NewReplacer("ms", " ms", "s", " s").Replace(wait.String()))
		wait = min(2*wait, infoLast)
	}
	total := infoLast
	for wait, i := infoFirst, 1; i < infoTries; i++ {
		total += wait
		wait = min(2*wait, infoLast)
	}
	var calls []string
	for _, name := range builtins {
		calls = append(calls, "`"+name+"`")
	}
	last := len(calls) - 1
	for _, want := range []string{
		fmt.Sprintf("uses the IDs 1 to %d", maxID),
		fmt.Sprintf("sends nothing for %d ms", quiet.Milliseconds()),
		fmt.Sprintf("It waits %s and %s, and the", strings.Join(waits[:infoTries-1], ", "), waits[infoTries-1]),
		fmt.Sprintf("Answer within %v seconds of the start", total.Seconds()),
		fmt.Sprintf("until %d ms of silence or for a second", quiet.Milliseconds()),
		fmt.Sprintf("waits %d seconds and the", int(listWait.Seconds())),
		fmt.Sprintf("one of %s and %s missing", strings.Join(calls[:last], ", "), calls[last]),
		fmt.Sprintf("| `rich` | ESP32 and larger | %d bytes |", profiles["rich"].line),
		fmt.Sprintf("also any unknown word | %d bytes |", profiles["conservative"].line),
		fmt.Sprintf("| `low` | AVR | %d bytes |", profiles["low"].line),
		fmt.Sprintf("%d bytes for `rich`, %d for `low`, `conservative` and unknown ones", profiles["rich"].line, profiles["low"].line),
		fmt.Sprintf("It takes %d bytes for `get_info`, and for the list %d KB if the profile is `rich` or absent, %d KB if it is `conservative` or unknown, and %d KB if it is `low`",
			infoSize, profiles["rich"].list>>10, profiles["conservative"].list>>10, profiles["low"].list>>10),
		fmt.Sprintf("at that interval, 1 to %d ms", maxPoll),
		fmt.Sprintf("time between two samples, 1 to %d", maxPoll),
		fmt.Sprintf("0 for none. At most %d", ferrule.MaxSamples),
		fmt.Sprintf("A line from a board has at most %d KB", transport.DefaultLimits().Line>>10),
		fmt.Sprintf("Limits: %d tools, %d pins, %d MB in all", ferrule.MaxTools, ferrule.MaxPins, ferrule.MaxManifest>>20),
		fmt.Sprintf("| tool | 1 to %d bytes", ferrule.MaxToolName),
		fmt.Sprintf("At most %d bytes", ferrule.MaxText),
		fmt.Sprintf("A schema has at most %d KB", ferrule.MaxSchema>>10),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if boot != time.Second || listTries != 3 || infoTries != 5 {
		t.Error("the page has the words a second, three times and five times")
	}
	if profiles[""] != (profile{list: profiles["rich"].list}) {
		t.Error("the page says that a board without a profile has no limit")
	}
	checkErrors(t, string(page))
	for _, anchor := range []string{
		"Lines", "Requests and answers", "IDs", "Errors", "Long requests", "Several requests", "get_info", "list_tools", "Names", "Schemas",
		"Pins", "Sampling", "Thresholds", "Polling", "Speed", "Memory", "Start and reset", "TCP", "Boards",
	} {
		if !strings.Contains(string(page), "\n## "+anchor+"\n") {
			t.Errorf("the page has no heading %s", anchor)
		}
	}
}

// checkErrors compares the table of errors with what the package makes of them.
func checkErrors(t *testing.T, page string) {
	t.Helper()
	row := regexp.MustCompile(`(?m)^\| (-\d+|any other) \| .* \| (.*) \| (.*) \|$`)
	rows := row.FindAllStringSubmatch(page, -1)
	if len(rows) != 6 {
		t.Errorf("the table of errors has %d rows", len(rows))
	}
	for _, r := range rows {
		code, err := strconv.Atoi(r[1])
		if err != nil {
			code = -32000
		}
		if strings.Contains(r[2], "ID 0") {
			if a := (answer{err: &jsonrpc.Error{Code: code}}); !a.mangled() || !strings.Contains("the request failed at once, and may have run the same", r[3]) {
				t.Errorf("%q", r)
			}
			continue
		}
		_, err = result(&ferrule.Call{}, answer{id: 7, err: &jsonrpc.Error{Code: code}})
		if e := ferrule.AsError(err); !strings.HasPrefix(r[3], string(e.Code)) {
			t.Errorf("%q, but it is %s", r, e.Code)
		}
	}
}
