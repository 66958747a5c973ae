package telemetry

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The metrics. docs/reference/telemetry.md has them in a table, which a test compares. None has
// the name of a device or a tool in a label: there may be a million.
var (
	buildInfo = metric("build_info", "What runs: the value is always 1.", "version", "go")

	callsTotal     = metric("calls_total", "Calls that have ended, by what came of them, what they asked for and who called.", "outcome", "act", "role")
	callsInFlight  = metric("calls_in_flight", "Calls that are on the road.", "role")
	callDuration   = metric("call_duration_seconds", "How long calls took in all, by who called.", "role")
	stageDuration  = metric("stage_duration_seconds", "How long stages of the road took, without those that follow, of at most 1,000 calls a second.", "stage")
	laneWait       = metric("lane_wait_seconds", "How long calls waited for the lane of their device, by who called.", "role")
	deviceDuration = metric("device_duration_seconds", "How long devices took to answer, by who called.", "role")
	nodeDuration   = metric("node_call_duration_seconds", "How long calls to devices of other nodes took from here.")
	serveDuration  = metric("node_serve_duration_seconds", "How long calls of other nodes took here.")

	lanesBusy    = metric("lanes_busy", "Devices that are at a call.")
	lanesWaiting = metric("lanes_waiting_calls", "Calls that wait for the lane of their device.")

	cacheLookups = metric("cache_lookups_total", "Calls whose answer may be known already, by whether it was.", "result")
	cacheEntries = metric("cache_entries", "Answers that are kept.")
	cacheBytes   = metric("cache_bytes", "What the answers take that are kept.")
	limitedTotal = metric("calls_limited_total", "Calls that were refused because their caller called too much.")

	sessions    = metric("agent_sessions", "Agents that are connected.")
	devices     = metric("devices", "Devices of this node, by whether they can be reached and how.", "state", "dialect", "medium")
	devicesHeld = metric("devices_held", "Devices of this node that wait to be adopted.")

	busInfo    = metric("bus_info", "How this node takes part: the value is always 1.", "mode", "node", "tenant")
	busWorking = metric("bus_working", "Whether what this node knows reaches the other nodes: 1 or 0.")
	busNodes   = metric("bus_nodes", "Other nodes that live.")
	busRecords = metric("bus_records_waiting", "Records of own devices that have yet to be written.")
	busSpooled = metric("bus_events_waiting", "Events that wait in memory to be kept.")
	busLost    = metric("bus_events_lost_total", "Events that there was no room for.")
	busSending = metric("bus_calls_sending", "Calls to other nodes that are under way.")
	busServing = metric("bus_calls_serving", "Calls of other nodes that are under way.")

	journalRecords  = metric("journal_records_total", "Records that were written to the journal.")
	journalSync     = metric("journal_sync_duration_seconds", "How long the disk took to sync records of the journal.")
	journalFailures = metric("journal_failures_total", "Writes to the journal that failed.")
	journalBytes    = metric("journal_size_bytes", "How long the journal is.")
	journalHealthy  = metric("journal_healthy", "Whether the journal can be written: 1 or 0. If not, nothing may be changed.")

	senseDevices = metric("sense_devices", "Devices that are asked for what they measure.")
	senseProbes  = metric("sense_probes", "Probes that devices are asked with in turn.")
	senseWaiting = metric("sense_probes_waiting", "Probes that are due, and wait for their device or for room.")
	senseBacking = metric("sense_probes_backing_off", "Probes that are asked less often, for their devices struggle.")
	senseReads   = metric("sense_reads_total", "Reads that the gateway has made by itself, by what came of them.", "result")
	senseSamples = metric("sense_samples_total", "Samples that those have brought.")
	senseDropped = metric("sense_readings_dropped_total", "Readings that there was no room for.")
	senseLate    = metric("sense_lateness_seconds", "How much later than planned reads were begun.")

	historySignals   = metric("history_signals", "Signals that are kept.")
	historySamples   = metric("history_samples_total", "Samples that were written.")
	historyRefused   = metric("history_samples_refused_total", "Samples of more signals than are kept.")
	historyBehind    = metric("history_readings_waiting", "Readings that wait to be written.")
	historyBytes     = metric("history_size_bytes", "What the history takes on disk.")
	historyRecording = metric("history_recording", "Whether readings are kept: 1 or 0.")

	reading         = metric("reading", "What a device measured last, if that is not longer than five minutes ago.", "device", "signal", "unit")
	readingsDropped = metric("readings_dropped_total", "Samples of signals that there was no room for.")

	spansTotal = metric("spans_total", "Spans of traces, by what became of them.", "result")
)

func metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ferrule_"+name, help, labels, nil)
}

// Handler serves the metrics; it is nil if there are none.
func (o *Telemetry) Handler() http.Handler {
	if !o.parts.Config.Metrics {
		return nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collector{o})
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, ErrorLog: logger{o.parts.Log}})
}

// collector tells of what was counted when it is asked. It is a prometheus.Collector.
type collector struct{ *Telemetry }

// Describe implements prometheus.Collector. It names nothing: what there is depends on
// what the gateway is made of.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	to := told(out)
	to.gauge(buildInfo, 1, c.parts.Version, runtime.Version())
	c.collectCalls(to)
	c.collectSources(to, &c.parts.Sources)
	if c.parts.Config.Readings {
		to.counter(readingsDropped, c.readings.each(func(s signal, m measured) { to.gauge(reading, m.value, s.device, s.name, m.unit) }))
	}
	if t := c.traces; t != nil {
		to.counter(spansTotal, t.sent.Load(), "sent")
		to.counter(spansTotal, t.failed.Load(), "failed")
		to.counter(spansTotal, t.dropped.Load(), "dropped")
	}
}

// collectCalls tells of calls.
func (c collector) collectCalls(to told) {
	c.calls.each(func(count uint64, code, act, role string) { to.counter(callsTotal, count, code, act, role) })
	for i, role := range roles {
		if role == other && c.whole[i].none() && c.waits[i].none() {
			continue
		}
		to.gauge(callsInFlight, float64(c.inFlight[i].Load()), role)
		to.histogram(callDuration, &c.whole[i], role)
		to.histogram(laneWait, &c.waits[i], role)
		to.histogram(deviceDuration, &c.takes[i], role)
	}
	for _, s := range c.stages {
		to.histogram(stageDuration, &s.times, s.name)
	}
	to.histogram(nodeDuration, &c.away)
	to.histogram(serveDuration, &c.served)
	to.histogram(journalSync, &c.syncs)
}

// collectSources tells of what the parts of the gateway count.
func (c collector) collectSources(to told, s *Sources) {
	if s.Devices != nil {
		collectDevices(to, s.Devices)
	}
	if s.Lanes != nil {
		lanes := s.Lanes()
		to.gauge(lanesBusy, float64(lanes.Busy))
		to.gauge(lanesWaiting, float64(lanes.Waiting))
	}
	if s.Cache != nil {
		cache := s.Cache()
		to.counter(cacheLookups, cache.Hits, "hit")
		to.counter(cacheLookups, cache.Misses, "miss")
		to.gauge(cacheEntries, float64(cache.Entries))
		to.gauge(cacheBytes, float64(cache.Bytes))
		to.counter(limitedTotal, cache.Limited)
	}
	if s.Sessions != nil {
		to.gauge(sessions, float64(s.Sessions()))
	}
	if s.Bus != nil {
		c.collectBus(to, s.Bus())
	}
	if s.Journal != nil {
		j := s.Journal()
		to.counter(journalRecords, j.Records)
		to.counter(journalFailures, j.Failures)
		to.gauge(journalBytes, float64(j.Bytes))
		to.gauge(journalHealthy, truth(j.Healthy))
	}
	if s.Sense != nil {
		collectSense(to, s.Sense())
	}
	if s.History != nil {
		h := s.History()
		to.gauge(historySignals, float64(h.Signals))
		to.counter(historySamples, h.Samples)
		to.counter(historyRefused, h.Refused)
		to.gauge(historyBehind, float64(h.Behind))
		to.gauge(historyBytes, float64(h.Bytes))
		to.gauge(historyRecording, truth(h.Recording))
	}
}

// collectDevices counts devices.
func collectDevices(to told, each func(func(*ferrule.Device))) {
	type sort struct{ state, dialect, medium string }
	counts, held := make(map[sort]int), 0
	each(func(dev *ferrule.Device) {
		counts[sort{string(dev.State), dev.Protocol, dev.Transport}]++
		if dev.Trust == ferrule.TrustPending {
			held++
		}
	})
	for s, count := range counts {
		to.gauge(devices, float64(count), s.state, s.dialect, s.medium)
	}
	to.gauge(devicesHeld, float64(held))
}

func (c collector) collectBus(to told, b Cluster) {
	to.gauge(busInfo, 1, b.Mode, c.parts.Node, b.Tenant)
	to.gauge(busWorking, truth(b.Working))
	to.gauge(busNodes, float64(b.Nodes))
	to.gauge(busRecords, float64(b.Records))
	to.gauge(busSpooled, float64(b.Spooled))
	to.counter(busLost, b.Lost)
	to.gauge(busSending, float64(b.Sending))
	to.gauge(busServing, float64(b.Serving))
}

func collectSense(to told, s Poller) {
	to.gauge(senseDevices, float64(s.Devices))
	to.gauge(senseProbes, float64(s.Probes))
	to.gauge(senseBacking, float64(s.BackingOff))
	to.gauge(senseWaiting, float64(s.Waiting))
	to.counter(senseReads, s.Reads-min(s.Failures, s.Reads), "ok") // they are not counted at one moment
	to.counter(senseReads, s.Failures, "failed")
	to.counter(senseSamples, s.Samples)
	to.counter(senseDropped, s.Dropped)
	count, buckets := uint64(0), make(map[float64]uint64)
	for i, n := range s.LateCounts {
		if count += n; i < len(s.LateBounds) {
			buckets[s.LateBounds[i].Seconds()] = count
		}
	}
	to <- prometheus.MustNewConstHistogram(senseLate, count, s.LateSum.Seconds(), buckets)
}

// told is where metrics go.
type told chan<- prometheus.Metric

func (to told) gauge(of *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, labels...)
}

func (to told) counter(of *prometheus.Desc, value uint64, labels ...string) {
	to <- prometheus.MustNewConstMetric(of, prometheus.CounterValue, float64(value), labels...)
}

func (to told) histogram(of *prometheus.Desc, t *times, labels ...string) {
	count, sum, buckets := t.histogram()
	to <- prometheus.MustNewConstHistogram(of, count, sum, buckets, labels...)
}

// logger logs what goes wrong with serving metrics.
type logger struct{ *slog.Logger }

// Println implements promhttp.Logger.
func (l logger) Println(v ...any) { l.Warn("metrics cannot be told", "err", fmt.Sprint(v...)) }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
