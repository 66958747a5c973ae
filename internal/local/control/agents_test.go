package control

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestConnectedProcesses: a process is listed from its first to its last line, with the calls
// of its session.
func TestConnectedProcesses(t *testing.T) {
	s := &Server{}
	who, client := ferrule.Principal{Role: ferrule.Agent, Name: "local/claude"}, ferrule.Client{Name: "claude", Version: "2"}
	end := s.agents.begin("process-1", who, client)
	other := s.agents.begin("process-2", who, client)
	s.agents.called(&ferrule.Call{Session: "process-1", Principal: who, Client: client})
	s.agents.called(&ferrule.Call{Session: "process-3", Principal: who, Client: client})
	s.agents.called(&ferrule.Call{Principal: who})
	other()
	all := s.Connected()
	if len(all) != 1 || all[0].Calls != 1 || all[0].Called.IsZero() || all[0].Principal != who || all[0].Client != client || !all[0].Session {
		t.Errorf("got %+v", all)
	}
	end()
	if all := s.Connected(); len(all) != 0 {
		t.Errorf("got %+v", all)
	}
}
