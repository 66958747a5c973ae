package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var (
	anybody = ferrule.Principal{Role: ferrule.Agent, Name: "anybody"}
	limited = ferrule.Principal{Role: ferrule.Agent, Name: "limited"}
)

// connectAs connects the SDK's client to a view as a principal. Changes of lists and
// resources go to a channel.
func connectAs(t *testing.T, v *view, who ferrule.Principal, version string) (*mcp.ClientSession, chan string) {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	server, err := v.sdk.Connect(context.WithValue(t.Context(), callerKey{}, who), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 100)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { told <- "tools" },
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { told <- "prompts" },
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { told <- "resources" },
		ResourceUpdatedHandler:     func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { told <- r.Params.URI },
	})
	session, err := client.Connect(t.Context(), here, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		session.Close()
		server.Close()
	})
	return session, told
}

// everything returns all names and URIs that an agent can list or complete.
func everything(t *testing.T, session *mcp.ClientSession) string {
	t.Helper()
	var all []string
	for tool, err := range session.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tool.Name)
	}
	for r, err := range session.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r.URI)
	}
	for r, err := range session.ResourceTemplates(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r.URITemplate)
	}
	for p, err := range session.Prompts(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p.Name)
	}
	for argument, template := range map[string]string{"device": deviceURI, "reading": readingURI, "uri": resourceURI} {
		done, err := session.Complete(t.Context(), &mcp.CompleteParams{
			Ref: &mcp.CompleteReference{Type: "ref/resource", URI: template}, Argument: mcp.CompleteParamsArgument{Name: argument},
			Context: &mcp.CompleteContext{Arguments: map[string]string{"device": "robot"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range done.Completion.Values {
			all = append(all, argument+"="+value)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// twoDevices returns a server for two devices, and a function that hides names from one
// caller. The name of a device stands for all of it.
func twoDevices(t *testing.T, handle ferrule.Handler) (f *Server, hide func(names ...string)) {
	t.Helper()
	m := aServer()
	m.Tools = append(m.Tools, ferrule.Tool{Name: "look", Effect: ferrule.Reads})
	m.Instructions = "I am a server."
	f = newServerOf(t, handle, m)
	f.parts.Catalog.Put(&ferrule.Device{ID: "lamp", Kind: "k", Model: "board", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, m)
	var hidden atomic.Pointer[[]string]
	hidden.Store(&[]string{})
	f.parts.Catalog.ShowTo(func(who ferrule.Principal) ferrule.Visibility {
		names := *hidden.Load()
		if who != limited || len(names) == 0 {
			return ferrule.Visibility{}
		}
		return ferrule.Visibility{Version: strings.Join(names, " "), Shows: func(dev *ferrule.Device, _ ferrule.Operation, tool *ferrule.Tool) bool {
			return !slices.Contains(names, dev.ID) && !slices.Contains(names, tool.Name)
		}}
	})
	return f, func(names ...string) {
		hidden.Store(&names)
		f.PolicyChanged()
	}
}

// TestHidden checks that what is hidden from a caller is in no list and no completion of
// that caller, in every version of MCP and at every address, and is there for another.
func TestHidden(t *testing.T) {
	f, hide := twoDevices(t, operations)
	hide("look", "file:///log", "greet", "lamp")
	for _, version := range versions {
		for _, address := range []string{"", "robot", "lamp"} {
			t.Run(version+" "+address, func(t *testing.T) {
				all, _ := connectAs(t, f.viewAt(address), anybody, version)
				some, _ := connectAs(t, f.viewAt(address), limited, version)
				whole, part := everything(t, all), everything(t, some)
				for _, name := range []string{"look", "file:///log", "greet", "lamp"} {
					if address != "robot" && !strings.Contains(whole, name) || address == "" && name == "lamp" && !strings.Contains(whole, "device=lamp") {
						t.Errorf("%s is missing for anybody:\n%s", name, whole)
					}
				}
				lines := strings.Split(part, "\n")
				for _, line := range lines {
					for _, name := range []string{"look", "greet", "lamp"} {
						if strings.Contains(line, name) && !strings.HasPrefix(line, "device=") || line == "device=lamp" && address == "" {
							t.Errorf("%q is shown", line)
						}
					}
					if strings.HasSuffix(line, "file:///log") {
						t.Errorf("%q is shown", line)
					}
				}
				if moves := strings.Contains(part, "move"); moves != (address != "lamp") {
					t.Errorf("got\n%s", part)
				}
				if told := some.InitializeResult().Instructions; address == "lamp" && strings.Contains(told, "I am a server.") {
					t.Errorf("instructions: %s", told)
				}
			})
		}
	}
}

// TestPolicyChanged checks that agents are told within two seconds that the policy has
// changed, and that subscriptions to what is now hidden end.
func TestPolicyChanged(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			f, hide := twoDevices(t, operations)
			go f.Run(t.Context())
			session, told := connectAs(t, f.viewAt(""), limited, version)
			before := everything(t, session)
			if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateURI("lamp")}); err != nil {
				t.Fatal(err)
			}
			if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateURI("robot")}); err != nil {
				t.Fatal(err)
			}
			f.subscribed(t, 2)
			hide("look", "lamp")
			got := make(map[string]bool)
			for len(got) < 3 {
				select {
				case what := <-told:
					got[what] = true
				case <-time.After(wait.Ample):
					t.Fatalf("told only %v", got)
				}
			}
			if now := everything(t, session); now == before || strings.Contains(now, "lamp") {
				t.Errorf("still shown:\n%s", now)
			}
			f.subscribed(t, 1)
			if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateURI("lamp")}); err == nil && version < "2026" {
				t.Error("a hidden device can be subscribed to")
			}
			f.subscribed(t, 1)
		})
	}
}

// TestShownLater checks that an agent from whom something is hidden is told when its list
// changes although the whole list does not.
func TestShownLater(t *testing.T) {
	f, hide := twoDevices(t, operations)
	hide("unlabeled")
	f.parts.Catalog.ShowTo(func(who ferrule.Principal) ferrule.Visibility {
		return ferrule.Visibility{Version: "1", Shows: func(dev *ferrule.Device, _ ferrule.Operation, _ *ferrule.Tool) bool {
			return dev.Labels["room"] == "kitchen"
		}}
	})
	go f.Run(t.Context())
	session, told := connectAs(t, f.viewAt(""), limited, versions[0])
	if got := everything(t, session); strings.Contains(got, "robot__look") {
		t.Fatalf("got\n%s", got)
	}
	dev, m, _ := f.parts.Catalog.Lookup("robot")
	labeled := *dev
	labeled.Labels = map[string]string{"room": "kitchen"}
	f.parts.Catalog.Put(&labeled, m)
	select {
	case <-told:
	case <-time.After(wait.Ample):
		t.Fatal("not told")
	}
	if got := everything(t, session); !strings.Contains(got, "robot__look") {
		t.Errorf("got\n%s", got)
	}
}

// TestManyCallers checks that the lists of few callers are remembered, that all are told of
// the next change if there were more, and that those who left do not count any longer.
func TestManyCallers(t *testing.T) {
	f, _ := twoDevices(t, operations)
	f.parts.Catalog.ShowTo(func(ferrule.Principal) ferrule.Visibility {
		return ferrule.Visibility{Version: "1", Shows: func(*ferrule.Device, ferrule.Operation, *ferrule.Tool) bool { return false }}
	})
	v := f.viewAt("")
	_, told := connectAs(t, v, limited, versions[0])
	for n := range 2 * maxLastFor {
		who := ferrule.Principal{Role: ferrule.Agent, Name: fmt.Sprint("local/", n)}
		v.seenBy(context.WithValue(t.Context(), callerKey{}, who))
	}
	if len(v.lastFor) != maxLastFor || !v.crowded {
		t.Errorf("%d callers are remembered, crowded %t", len(v.lastFor), v.crowded)
	}
	v.listsChanged()
	got := make(map[string]bool)
	for len(got) < 3 {
		select {
		case what := <-told:
			got[what] = true
		case <-time.After(wait.Ample):
			t.Fatalf("told only %v", got)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.lastFor) != 0 || v.crowded {
		t.Errorf("then %d callers are remembered, crowded %t", len(v.lastFor), v.crowded)
	}
}

// TestEachSubscriberIsAsked checks that each caller's subscription to a resource passes the
// pipeline, also if the device reports it already for another.
func TestEachSubscriberIsAsked(t *testing.T) {
	var mu sync.Mutex
	calls := make(map[string]int)
	f := newServerOf(t, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		calls[fmt.Sprint(call.Principal.Name, " ", call.Operation)]++
		if call.Principal == limited {
			return nil, ferrule.Errorf(ferrule.Denied, "no")
		}
		return &ferrule.Result{}, nil
	}, aServer())
	const uri = "ferrule://devices/robot/resources/file:///log"
	first, told := connectAs(t, f.viewAt(""), anybody, versions[0])
	second, _ := connectAs(t, f.viewAt(""), limited, versions[0])
	again, _ := connectAs(t, f.viewAt(""), anybody, versions[0])
	if err := first.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
	if err := second.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err == nil {
		t.Error("the second subscriber was not refused")
	}
	if err := again.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	if calls["anybody subscribe"] != 1 || calls["limited subscribe"] != 1 {
		t.Errorf("got %v", calls)
	}
	mu.Unlock()
	f.subscribed(t, 2)
	update(f, "file:///log")
	select {
	case <-told:
	case <-time.After(wait.Ample):
		t.Error("the first subscriber is not told any longer")
	}
}
