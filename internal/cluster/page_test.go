package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestPage: docs/reference/cluster.md names every subject, bucket, stream, header and word that
// there is, with the bounds that hold, and its examples are what nodes write.
func TestPage(t *testing.T) {
	data, err := os.ReadFile("../../docs/reference/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	words := strings.Join(strings.Fields(page), " ")
	for _, want := range pageSays() {
		if !strings.Contains(words, want) {
			t.Errorf("docs/reference/cluster.md does not say %s", want)
		}
	}
	for _, example := range pageShows() {
		text, err := json.Marshal(example)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page, "\n"+string(text)+"\n") {
			t.Errorf("docs/reference/cluster.md does not show\n%s", text)
		}
	}
	for _, of := range []any{ferrule.Event{}, ferrule.Reading{}, ferrule.Gap{}, record{}, lease{}, layout{}, request{}} {
		for field := range reflect.TypeOf(of).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !strings.Contains(page, `"`+name+`":`) && !strings.Contains(page, "`"+name+"`") {
				t.Errorf("docs/reference/cluster.md does not tell of %s in %T", name, of)
			}
		}
	}
}

// pageSays is what stands in the page.
func pageSays() (all []string) {
	n := names{"TENANT", "NODE"}
	add := func(texts ...string) {
		for _, text := range texts {
			all = append(all, "`"+text+"`")
		}
	}
	add(n.sample("DEVICE", "PROBE", false), n.sample("DEVICE", "PROBE", true), names{"*", "*"}.sample("*", "*", false), samplesStream, jetstream.MsgIDHeader)
	for _, why := range []ferrule.GapReason{ferrule.Lost, ferrule.Unclear, ferrule.Restart, ferrule.Silent, ferrule.Dropped} {
		add(string(why))
	}
	add(n.event("DEVICE", "WHAT"), n.journal("CHAIN"), n.replies()+"TOKEN", n.inbox()+".…")
	for _, verb := range []string{verbCall, verbCancel, verbAsk, verbAnswer} {
		add(n.at("NODE", "BOOT", verb))
	}
	for _, what := range []ferrule.EventType{ferrule.Appeared, ferrule.Gone, ferrule.ChangedKind, ferrule.PendingFound, ferrule.Quarantined, ferrule.Notified} {
		all = append(all, "| `"+string(what)+"` |")
	}
	for _, kind := range []byte{frameResult, frameError, framePart, frameProgress, frameQuestion, frameMoved, frameRunning, frameUnknown, frameForgot} {
		all = append(all, "| `"+string(kind)+"` |")
	}
	add(nodesBucket, kindsBucket, devicesBucket(0), eventsStream, journalStream, spoolStream, originHeader, firstHeader, lastHeader,
		n.key("ID"), n.key("NODE"), n.key("KIND"), layoutKey)
	mib := func(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }
	return append(all, mib(eventsBytes), mib(leasesMost), mib(spoolBytes), mib(keptBytes), fmt.Sprintf("%d GiB", journalMost>>30), fmt.Sprintf("%d GiB", kindsMost>>30),
		fmt.Sprintf("%d hours, %d GiB", samplesAge/time.Hour, int64(samplesBytes)>>30), fmt.Sprintf("up to %d and %d MiB", maxBacklog, maxBacklogBytes>>20),
		fmt.Sprintf("%d samples in %d series", ferrule.MaxSamples, ferrule.MaxBatches), fmt.Sprintf("%d days", eventsAge/24/time.Hour), fmt.Sprintf("%d KiB", maxRecord>>10), fmt.Sprintf("%d KiB", maxPacked>>10),
		fmt.Sprintf("%v seconds", leaseTTL.Seconds()), fmt.Sprintf("every %v", leaseRenew.Seconds()), fmt.Sprintf("%v seconds", keepTime.Seconds()),
		fmt.Sprintf("%v seconds without news", askAfter.Seconds()), fmt.Sprintf("%d events", maxSpool),
		fmt.Sprintf("at most %d KiB", ferrule.MaxParams>>10), fmt.Sprintf("%d things", maxSaid), fmt.Sprintf("the last %d on each subject", eventsEach))
}

// pageShows is examples, as nodes write them.
func pageShows() []any {
	const kind = "cb80d5cc8edddbc90f8b2000a71eb73c321bb340a27432434e19b109bfefd752"
	at := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	pump := &ferrule.Device{
		ID: "pump", Address: "usb:2341:0043:85735313", Transport: "serial", Protocol: "mcpu", Node: "north", Kind: kind,
		State: ferrule.StateOnline, Since: at, Trust: ferrule.TrustAdopted,
	}
	return []any{
		ferrule.Event{Seq: 42, Time: at, Type: ferrule.Gone, Device: "pump", Node: "north", Kind: kind, Reason: "it was unplugged"},
		ferrule.Event{
			Seq: 43, Time: at, Type: ferrule.Notified, Device: "toy", Node: "north", Kind: kind,
			Method: "notifications/state_changed", Params: json.RawMessage(`{"newState":"idle"}`),
		},
		ferrule.Reading{Device: "pump", Node: "north", Poll: "flow", Time: at, Batches: []ferrule.SampleBatch{{
			Signal: "flow", Unit: "l/min",
			Samples: []ferrule.Sample{
				{Time: at.Add(-time.Second), Value: 4.2, Within: ferrule.Duration(250 * time.Millisecond)},
				{Time: at.Add(-500 * time.Millisecond), Value: 4.3, Within: ferrule.Duration(250 * time.Millisecond)},
			},
			Gaps: []ferrule.Gap{{From: at.Add(-time.Minute), To: at.Add(-time.Second), Reason: ferrule.Lost, MaxMissing: 117}},
		}}},
		recordOf(pump, 7),
		lease{"k3v7m2q6x4t5w2a3b7c6", "h5d2n7c4qa", "1.4.0"},
		layout{16},
		request{
			Call: ferrule.Call{
				ID: "01k8", Principal: ferrule.Principal{Role: ferrule.Agent, Name: "claude"}, Device: "pump", Tool: "start",
				Args: json.RawMessage(`{"litres":2}`), Timeout: ferrule.Duration(30 * time.Second),
			},
			Kind: kind, Epoch: 7, Effect: ferrule.Changes,
		},
	}
}
