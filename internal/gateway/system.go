package gateway

import (
	"context"
	"io/fs"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/doctor"
)

// systemParts returns what the console knows about the gateway itself.
func (g *Gateway) systemParts() api.SystemParts {
	started := time.Now()
	return api.SystemParts{
		Info:   func() api.SystemInfo { return g.systemInfo(started) },
		Config: g.configInForce, Verify: g.verifyJournals, Doctor: g.examine,
	}
}

// systemInfo returns the state of the gateway.
func (g *Gateway) systemInfo(started time.Time) api.SystemInfo {
	s := g.Cluster.State()
	info := api.SystemInfo{
		Version: g.parts.Version, Go: runtime.Version(), Started: started, Listen: g.Addr(),
		Mode: string(s.Mode), Node: s.Node, Tenant: s.Tenant, Working: s.Working, Since: s.Since, Reason: ferrule.Clean(s.Reason, ferrule.MaxText),
		Nodes: []api.Node{{Name: s.Node, This: true}}, Memory: memoryInUse(), Goroutines: runtime.NumGoroutine(), Storage: g.storage(),
		Journal: health(g.Journal.Health()), History: api.Health{Working: g.History != nil, Problem: "measurements are not recorded: history.enabled is false"},
	}
	for _, name := range s.Nodes {
		info.Nodes = append(info.Nodes, api.Node{Name: name})
	}
	if g.History != nil {
		problem := g.History.Stats().Stopped
		info.History = api.Health{Working: problem == "", Problem: problem}
	}
	return info
}

func health(err error) api.Health {
	if err != nil {
		return api.Health{Problem: ferrule.Clean(err.Error(), ferrule.MaxText)}
	}
	return api.Health{Working: true}
}

// memoryInUse returns the memory that the program has from the operating system.
func memoryInUse() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}

// storage returns the size of what is on disk.
func (g *Gateway) storage() api.Storage {
	cfg, _ := g.parts.Config.JournalConfig() // it was checked
	out := api.Storage{Journal: g.Journal.Stats().Bytes, SegmentSize: cfg.SegmentSize, SegmentAge: ferrule.Duration(cfg.SegmentAge)}
	out.Free, _ = history.FreeSpace(g.parts.Data)
	if files, err := journal.Segments(g.parts.Data); err == nil {
		out.JournalFiles = len(files)
	}
	if g.History != nil {
		h := g.parts.Config.HistoryConfig()
		out.History, out.HistoryLimit, out.RawFor = g.History.Stats().Bytes, h.Size, ferrule.Duration(h.Raw)
	}
	out.Streams, out.StreamsLimit = sizeOf(filepath.Join(g.parts.Data, clusterDir)), g.parts.Config.ClusterConfig().Store
	return out
}

// maxSized limits the files that sizeOf looks at.
const maxSized = 2000

// sizeOf returns the size of the files below a directory, of the first ones if there are
// very many.
func sizeOf(dir string) (total int64) {
	seen := 0
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if seen++; seen > maxSized {
			return fs.SkipAll
		}
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	return total
}

// configInForce returns the configuration in force.
func (g *Gateway) configInForce() (all []api.ConfigValue) {
	g.reloading.Lock()
	running := g.running
	g.reloading.Unlock()
	for _, v := range config.InForce(running, g.parts.ConfigFile) {
		one := api.ConfigValue{Key: v.Key, Value: v.Value, Source: string(v.Source), Secret: v.Secret}
		if v.Source == config.FromFile {
			one.Source = filepath.Base(g.parts.ConfigFile)
		}
		all = append(all, one)
	}
	return all
}

// examine runs the doctor on this machine.
func (g *Gateway) examine(ctx context.Context) (all []api.Finding) {
	d := doctor.New(doctor.Parts{Data: g.parts.Data, File: g.parts.ConfigFile, Version: g.parts.Version, FreeSpace: history.FreeSpace})
	for _, f := range d.Examine(ctx) {
		all = append(all, api.Finding{Area: f.Area, Check: f.Check, About: f.About, State: string(f.State), Found: f.Found, Next: f.Next})
	}
	return all
}
