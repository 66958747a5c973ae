package server

import (
	"fmt"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestStatelessAgentsBounded: agents without sessions can invent names without end. The ones
// that were heard last are remembered.
func TestStatelessAgentsBounded(t *testing.T) {
	f := newServer(t, nil)
	v := f.viewAt("")
	for i := range 3 * maxStateless {
		f.agents.mu.Lock()
		f.agents.find(v, "", fmt.Sprintf("local/%d", i)).Hear(ferrule.Principal{Role: ferrule.Agent, Name: fmt.Sprintf("local/%d", i)}, ferrule.Client{Name: "x"}, true)
		f.agents.mu.Unlock()
	}
	all := f.Connected()
	last := fmt.Sprintf("local/%d", 3*maxStateless-1)
	found := false
	for _, a := range all {
		found = found || a.Principal.Name == last && a.Calls == 1 && !a.Session
	}
	if len(all) != maxStateless || !found {
		t.Errorf("%d agents are remembered, the last one: %t", len(all), found)
	}
}

// TestSessionsForgotten: a session over HTTP that has ended is not listed.
func TestSessionsForgotten(t *testing.T) {
	f := newServer(t, nil)
	v := f.viewAt("")
	f.agents.mu.Lock()
	f.agents.find(v, "ended", "claude").Hear(ferrule.Principal{Role: ferrule.Agent, Name: "claude"}, ferrule.Client{}, false)
	f.agents.find(v, streamPrefix+"open", "voice").Hear(ferrule.Principal{Role: ferrule.Agent, Name: "voice"}, ferrule.Client{}, false)
	f.agents.mu.Unlock()
	if all := f.Connected(); len(all) != 1 || all[0].Principal.Name != "voice" || !all[0].Session {
		t.Errorf("got %+v", all)
	}
	f.agents.gone(streamPrefix + "open")
	if all := f.Connected(); len(all) != 0 {
		t.Errorf("got %+v", all)
	}
}
