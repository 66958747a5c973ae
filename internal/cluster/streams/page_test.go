package streams

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestPage checks what the reference page says about streams, events and readings.
func TestPage(t *testing.T) {
	page := clustertest.OpenPage(t)
	n := engine.Names{Tenant: "TENANT", Node: "NODE"}
	page.Names(
		n.Sample("DEVICE", "POLL", false), n.Sample("DEVICE", "POLL", true), engine.Names{Tenant: "*", Node: "*"}.Sample("*", "*", false),
		n.Event("DEVICE", "TYPE"), n.Journal("CHAIN"),
		engine.SamplesStream, engine.EventsStream, engine.JournalStream, engine.SpoolStream,
		jetstream.MsgIDHeader, originHeader, firstHeader, lastHeader, afterHeader,
	)
	for _, reason := range []ferrule.GapReason{ferrule.Lost, ferrule.Unclear, ferrule.Restart, ferrule.Silent, ferrule.Dropped} {
		page.Names(string(reason))
	}
	for _, event := range []ferrule.EventType{ferrule.Appeared, ferrule.Gone, ferrule.ChangedKind, ferrule.PendingFound, ferrule.Quarantined, ferrule.Notified, ferrule.WasStopped, ferrule.WasResumed} {
		page.Says("| `" + string(event) + "` |")
	}
	page.Says(
		fmt.Sprintf("%d MiB", maxEventsBytes>>20), fmt.Sprintf("%d MiB", maxSpoolBytes>>20), fmt.Sprintf("%d GiB", maxJournalBytes>>30),
		fmt.Sprintf("%d hours, %d GiB", samplesAge/time.Hour, int64(maxSamplesBytes)>>30), fmt.Sprintf("up to %d and %d MiB", maxBacklog, maxBacklogBytes>>20),
		fmt.Sprintf("%d samples of %d signals", ferrule.MaxSamples, ferrule.MaxBatches), fmt.Sprintf("%d days", eventsAge/24/time.Hour), fmt.Sprintf("%d events", maxSpool),
		fmt.Sprintf("at most %d KiB", ferrule.MaxParams>>10), fmt.Sprintf("%d notifications", maxNotified), fmt.Sprintf("the last %d on each subject", eventsEach),
	)
	const kind = "cb80d5cc8edddbc90f8b2000a71eb73c321bb340a27432434e19b109bfefd752"
	at := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	page.Shows(
		ferrule.Event{Seq: 42, Time: at, Type: ferrule.Gone, Device: "pump", Node: "north", Kind: kind, Reason: "unplugged"},
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
	)
	page.Explains(ferrule.Event{}, ferrule.Reading{}, ferrule.Gap{})
}
