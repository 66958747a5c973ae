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
	"github.com/ferrulehq/ferrule/internal/histogram"
)

// The metrics. The reference page lists them in a table that a test compares. No label
// has the name of a device or a tool: there may be a million.
var (
	buildInfo = metric("build_info", "Version of the gateway; the value is always 1.", "version", "go")

	callsTotal     = metric("calls_total", "Calls that ended, by outcome, operation and role of the caller.", "outcome", "operation", "role")
	callerCalls    = metric("caller_calls_total", "Calls that ended, by caller and how it was authenticated. Above a limit, callers are counted together.", "caller", "auth")
	callsInFlight  = metric("calls_in_flight", "Calls in the pipeline.", "role")
	callDuration   = metric("call_duration_seconds", "Duration of whole calls, by role of the caller.", "role")
	stageDuration  = metric("stage_duration_seconds", "Duration of pipeline stages without the stages behind them, for at most 1,000 calls a second.", "stage")
	laneWait       = metric("lane_wait_seconds", "Time calls waited for the lane of their device.", "role")
	deviceDuration = metric("device_duration_seconds", "Time devices took to answer.", "role")
	nodeDuration   = metric("node_call_duration_seconds", "Duration of calls to devices of other nodes.")
	serveDuration  = metric("node_serve_duration_seconds", "Duration of calls from other nodes.")

	lanesBusy    = metric("lanes_busy", "Devices that are serving a call.")
	lanesWaiting = metric("lanes_waiting_calls", "Calls that wait for the lane of their device.")

	cacheLookups = metric("cache_lookups_total", "Lookups of cached answers, by result.", "result")
	cacheEntries = metric("cache_entries", "Answers in the cache.")
	cacheBytes   = metric("cache_bytes", "Size of the answers in the cache.")
	limitedTotal = metric("calls_limited_total", "Calls refused by the rate limit.")

	accessTotal    = metric("access_total", "Logins, consents, tokens and people that were added, used or removed, by event and result.", "event", "result")
	sessions       = metric("agent_sessions", "Connected agents.")
	tasksKept      = metric("tasks", "Tasks of all nodes, with those that have ended and are kept, by status.", "status")
	devices        = metric("devices", "Devices of this node, by state, protocol and transport.", "state", "protocol", "transport")
	devicesPending = metric("devices_pending", "Devices of this node that wait to be adopted.")

	clusterInfo    = metric("cluster_info", "Mode and names of this node; the value is always 1.", "mode", "node", "tenant")
	clusterWorking = metric("cluster_working", "Whether this node reaches the cluster: 1 or 0.")
	clusterNodes   = metric("cluster_nodes", "Other nodes that are alive.")
	clusterRecords = metric("cluster_records_waiting", "Device records that have yet to be written to the registry.")
	clusterSpooled = metric("cluster_events_waiting", "Events that wait in memory to be stored.")
	clusterLost    = metric("cluster_events_lost_total", "Events dropped because the queue was full.")
	clusterSending = metric("cluster_calls_sending", "Calls to other nodes in progress.")
	clusterServing = metric("cluster_calls_serving", "Calls from other nodes in progress.")

	journalRecords  = metric("journal_records_total", "Records written to the journal.")
	journalSync     = metric("journal_sync_duration_seconds", "Time the disk took to sync the journal.")
	journalFailures = metric("journal_failures_total", "Failed writes to the journal.")
	journalBytes    = metric("journal_size_bytes", "Size of the journal.")
	journalHealthy  = metric("journal_healthy", "Whether the journal can be written: 1 or 0. If not, calls that change something are denied.")

	stoppedAll     = metric("stopped", "Whether all changes are stopped: 1 or 0.")
	stoppedDevices = metric("stopped_devices", "Devices that are stopped one by one.")

	pollerDevices    = metric("poller_devices", "Devices that are polled.")
	pollerPolls      = metric("poller_polls", "Active polls.")
	pollerWaiting    = metric("poller_polls_waiting", "Polls that are due and wait for their device or a free slot.")
	pollerBackingOff = metric("poller_polls_backing_off", "Polls that run less often because they failed.")
	pollerReads      = metric("poller_reads_total", "Reads made by the poller, by result.", "result")
	pollerSamples    = metric("poller_samples_total", "Samples read by the poller.")
	pollerDropped    = metric("poller_readings_dropped_total", "Readings dropped because the queue was full.")
	pollerLate       = metric("poller_lateness_seconds", "How late polls started.")

	historySignals   = metric("history_signals", "Signals in the history.")
	historySamples   = metric("history_samples_total", "Samples written to the history.")
	historyRefused   = metric("history_samples_refused_total", "Samples of signals beyond the limit.")
	historyBehind    = metric("history_readings_waiting", "Readings that wait to be written.")
	historyBytes     = metric("history_size_bytes", "Size of the history on disk.")
	historyRecording = metric("history_recording", "Whether readings are recorded: 1 or 0.")

	reading         = metric("reading", "Latest measured value, if it is at most five minutes old.", "device", "signal", "unit")
	deviceLabel     = metric("device_label", "A label of a device, always 1, to join with readings.", "device", "key", "value")
	readingsDropped = metric("readings_dropped_total", "Samples of signals beyond the limit of this metric.")

	spansTotal = metric("spans_total", "Spans of traces, by result.", "result")
)

func metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ferrule_"+name, help, labels, nil)
}

// Handler serves GET /metrics. It is nil if metrics are off.
func (o *Telemetry) Handler() http.Handler {
	if !o.parts.Config.Metrics {
		return nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collector{o})
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, ErrorLog: logger{o.parts.Log}})
}

// collector converts counters to metrics on each scrape.
type collector struct{ *Telemetry }

// Describe implements prometheus.Collector. It is empty because the set of metrics
// depends on the parts of the gateway.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	to := sink(out)
	to.gauge(buildInfo, 1, c.parts.Version, runtime.Version())
	c.collectCalls(to)
	c.accesses.each(func(count uint64, event, result string) { to.counter(accessTotal, count, event, result) })
	c.collectSources(to, &c.parts.Sources)
	if c.parts.Config.Readings {
		if each := c.parts.Sources.Devices; each != nil {
			collectLabels(to, each)
		}
		to.counter(readingsDropped, c.readings.each(func(s signal, m measured) { to.gauge(reading, m.value, s.device, s.name, m.unit) }))
	}
	if t := c.traces; t != nil {
		to.counter(spansTotal, t.sent.Load(), "sent")
		to.counter(spansTotal, t.failed.Load(), "failed")
		to.counter(spansTotal, t.dropped.Load(), "dropped")
	}
}

func (c collector) collectCalls(to sink) {
	c.calls.each(func(count uint64, code, operation, role string) { to.counter(callsTotal, count, code, operation, role) })
	c.callers.each(func(count uint64, caller, auth string) { to.counter(callerCalls, count, caller, auth) })
	for i, role := range roles {
		if role == other && c.callTimes[i].Snapshot().Count() == 0 && c.laneWaits[i].Snapshot().Count() == 0 {
			continue
		}
		to.gauge(callsInFlight, float64(c.inFlight[i].Load()), role)
		to.histogram(callDuration, c.callTimes[i].Snapshot(), role)
		to.histogram(laneWait, c.laneWaits[i].Snapshot(), role)
		to.histogram(deviceDuration, c.deviceTimes[i].Snapshot(), role)
	}
	for _, s := range c.stages {
		to.histogram(stageDuration, s.times.Snapshot(), s.name)
	}
	to.histogram(nodeDuration, c.toNodes.Snapshot())
	to.histogram(serveDuration, c.fromNodes.Snapshot())
	to.histogram(journalSync, c.syncs.Snapshot())
}

func (c collector) collectSources(to sink, s *Sources) {
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
	if s.Tasks != nil {
		for status, n := range s.Tasks() {
			to.gauge(tasksKept, float64(n), string(status))
		}
	}
	if s.Cluster != nil {
		c.collectCluster(to, s.Cluster())
	}
	if s.Journal != nil {
		j := s.Journal()
		to.counter(journalRecords, j.Records)
		to.counter(journalFailures, j.Failures)
		to.gauge(journalBytes, float64(j.Bytes))
		to.gauge(journalHealthy, boolValue(j.Healthy))
	}
	if s.Stop != nil {
		stop := s.Stop()
		to.gauge(stoppedAll, boolValue(stop.Everything))
		to.gauge(stoppedDevices, float64(stop.Devices))
	}
	if s.Poller != nil {
		collectPoller(to, s.Poller())
	}
	if s.History != nil {
		h := s.History()
		to.gauge(historySignals, float64(h.Signals))
		to.counter(historySamples, h.Samples)
		to.counter(historyRefused, h.Refused)
		to.gauge(historyBehind, float64(h.Behind))
		to.gauge(historyBytes, float64(h.Bytes))
		to.gauge(historyRecording, boolValue(h.Recording))
	}
}

func collectDevices(to sink, each func(func(*ferrule.Device))) {
	type group struct{ state, protocol, transport string }
	counts, pending := make(map[group]int), 0
	each(func(dev *ferrule.Device) {
		counts[group{string(dev.State), dev.Protocol, dev.Transport}]++
		if dev.Trust == ferrule.TrustPending {
			pending++
		}
	})
	for s, count := range counts {
		to.gauge(devices, float64(count), s.state, s.protocol, s.transport)
	}
	to.gauge(devicesPending, float64(pending))
}

// collectLabels exports the labels of adopted devices, up to a limit.
func collectLabels(to sink, each func(func(*ferrule.Device))) {
	type label struct{ device, key, value string }
	var all []label
	each(func(dev *ferrule.Device) {
		for key, value := range dev.Labels {
			if len(all) < maxReadings && dev.Trust == ferrule.TrustAdopted {
				all = append(all, label{dev.ID, key, value})
			}
		}
	})
	for _, l := range all { // each must be quick
		to.gauge(deviceLabel, 1, l.device, l.key, l.value)
	}
}

func (c collector) collectCluster(to sink, b Cluster) {
	to.gauge(clusterInfo, 1, b.Mode, c.parts.Node, b.Tenant)
	to.gauge(clusterWorking, boolValue(b.Working))
	to.gauge(clusterNodes, float64(b.Nodes))
	to.gauge(clusterRecords, float64(b.Records))
	to.gauge(clusterSpooled, float64(b.Spooled))
	to.counter(clusterLost, b.Lost)
	to.gauge(clusterSending, float64(b.Sending))
	to.gauge(clusterServing, float64(b.Serving))
}

func collectPoller(to sink, s Poller) {
	to.gauge(pollerDevices, float64(s.Devices))
	to.gauge(pollerPolls, float64(s.Polls))
	to.gauge(pollerBackingOff, float64(s.BackingOff))
	to.gauge(pollerWaiting, float64(s.Waiting))
	to.counter(pollerReads, s.Reads-min(s.Failures, s.Reads), "ok") // the two are not read at the same moment
	to.counter(pollerReads, s.Failures, "failed")
	to.counter(pollerSamples, s.Samples)
	to.counter(pollerDropped, s.Dropped)
	to.histogram(pollerLate, s.Late)
}

type sink chan<- prometheus.Metric

func (to sink) gauge(of *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, labels...)
}

func (to sink) counter(of *prometheus.Desc, value uint64, labels ...string) {
	to <- prometheus.MustNewConstMetric(of, prometheus.CounterValue, float64(value), labels...)
}

func (to sink) histogram(of *prometheus.Desc, h histogram.Snapshot, labels ...string) {
	to <- prometheus.MustNewConstHistogram(of, h.Count(), h.Sum.Seconds(), h.Buckets(), labels...)
}

// logger logs errors of the metrics handler.
type logger struct{ *slog.Logger }

// Println implements promhttp.Logger.
func (l logger) Println(v ...any) { l.Warn("serving metrics", "err", fmt.Sprint(v...)) }

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
