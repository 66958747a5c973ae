package stdio

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// toolsOf returns the tools of robot that an agent sees.
func toolsOf(p *Proxy, who ferrule.Principal) (names []string) {
	for _, o := range p.catalog.As(who).Of("robot") {
		names = append(names, o.Name)
	}
	return names
}

// TestAnotherAgent checks that nothing is shown to an agent that was reported for another.
func TestAnotherAgent(t *testing.T) {
	p := newProxy()
	agent := ferrule.Principal{Role: ferrule.Agent}
	follow := func() joined {
		now, _ := p.identity()
		p.beginSync()
		return joined{Proxy: p, agent: now, synced: make(chan struct{})}
	}
	ready := func() bool {
		select {
		case <-p.ready:
			return true
		default:
			return false
		}
	}
	nobody := follow()
	nobody.Synced()
	if ready() {
		t.Error("ready before it is known who the agent is")
	}
	p.identify(ferrule.Client{Name: "first"})
	nobody.Put(robot()) // by a gateway that does not yet know
	if got := toolsOf(p, agent); got != nil {
		t.Errorf("an unknown agent sees %v", got)
	}
	first := follow()
	first.Put(robot())
	first.Synced()
	if got := toolsOf(p, agent); len(got) != 2 || !ready() {
		t.Errorf("got %v", got)
	}
	_, renamed := p.identity()
	p.identify(ferrule.Client{Name: "first", Version: "2"})
	select {
	case <-renamed:
		t.Error("another version is another agent")
	default:
	}
	p.identify(ferrule.Client{Name: "second"})
	<-renamed
	first.Put(robot())
	if got := toolsOf(p, agent); got != nil || ready() {
		t.Errorf("the second agent sees %v, as the first did", got)
	}
	second := follow()
	dev, m := robot()
	m.Tools = m.Tools[:1]
	second.Put(dev, m)
	second.Synced()
	if got := toolsOf(p, agent); !slices.Equal(got, []string{"look"}) || !ready() {
		t.Errorf("got %v", got)
	}
}

// TestHandOverHides checks that what a gateway in this process hides stays hidden when that
// of another process takes over, which leaves it out.
func TestHandOverHides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := ferrule.Principal{Role: ferrule.Agent}
		for _, known := range []bool{true, false} {
			p := newProxy()
			p.identify(ferrule.Client{Name: "agent"})
			p.beginSync()
			p.hideWith(func(ferrule.Principal) ferrule.Visibility {
				return ferrule.Visibility{Version: "1", Shows: func(_ *ferrule.Device, _ ferrule.Operation, tool *ferrule.Tool) bool { return tool.Name == "look" }}
			})
			p.Put(robot())
			p.Synced()
			p.connect("", nil)
			p.setReady()
			look := []string{"look"}
			if got := toolsOf(p, agent); !slices.Equal(got, look) {
				t.Errorf("in this process: %v", got)
			}
			p.disconnect()
			now, _ := p.identity()
			p.beginSync()
			next := joined{Proxy: p, agent: now, synced: make(chan struct{})}
			away, m := robot()
			away.State = ferrule.StateOffline
			if m.Tools = m.Tools[:1]; !known { // it was never reached by this gateway
				m, look = nil, nil
			}
			next.Put(away, m)
			if got := toolsOf(p, agent); !slices.Equal(got, look) {
				t.Errorf("while it is followed: %v", got)
			}
			next.Synced()
			if got := toolsOf(p, agent); !slices.Equal(got, look) {
				t.Errorf("in another process: %v", got)
			}
			back, m := robot()
			m.Tools = m.Tools[1:] // what that gateway shows
			next.Put(back, m)
			if got := toolsOf(p, agent); !slices.Equal(got, []string{"move"}) {
				t.Errorf("what the other process shows is hidden: %v", got)
			}
			time.Sleep(2 * grace)
		}
	})
}
