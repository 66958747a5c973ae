package approval_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/approval"
)

var misuseRounds = flag.Int("misuse-rounds", 1000, "rounds of TestMisuse")

// TestMisuse runs random calls, answers, changes and crashes, and counts what reaches the
// device. An execution is wrong if no person approved exactly this call, or if the approval
// was used before, has expired, was taken back, or was given by the caller or an agent.
//
// A crash leaves what the file has at that moment, which may be the moment between the
// approval and the execution, or in the middle of a write.
func TestMisuse(t *testing.T) {
	rounds := *misuseRounds
	if testing.Short() {
		rounds = min(rounds, 300)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	if memory, err := os.MkdirTemp("/dev/shm", "approvals"); err == nil { // a disk takes minutes
		defer os.RemoveAll(memory)
		dir = memory
	}
	executions, crashes := 0, 0
	for round := range rounds {
		m := &misuse{random: rand.New(rand.NewPCG(seed, uint64(round))), crashing: rand.New(rand.NewPCG(seed, uint64(round+rounds)))}
		synctest.Test(t, func(t *testing.T) {
			os.Remove(filepath.Join(dir, "approvals.jsonl"))
			m.world = newWorld(t, func(w *world) {
				w.dir, w.recorded, w.executed = dir, func(ferrule.Entry) { m.maybeCrash() }, m.execute
			})
			m.round()
		})
		executions += m.executions
		crashes += m.crashes
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	t.Logf("%d rounds, %d executions, %d crashes", rounds, executions, crashes)
	if executions < rounds/4 || crashes < rounds/4 {
		t.Errorf("%d executions and %d crashes in %d rounds prove little", executions, crashes, rounds)
	}
}

// misuse is one round.
type misuse struct {
	*world
	random *rand.Rand
	ids    []string // that were seen
	calls  sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc

	// Guarded by world.mu.
	crashing            *rand.Rand
	credits             map[string]credit
	run                 int    // of the gateway
	dead                bool   // the gateway has crashed, and does nothing more
	image               []byte // what it left
	executions, crashes int
}

// credit is how often a call may run, and until when.
type credit struct {
	n     int
	until time.Time
}

const anyNumber = 1_000_000

func (m *misuse) round() {
	m.credits = make(map[string]credit)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	for range 4 + m.random.IntN(8) {
		switch m.random.IntN(12) {
		case 0, 1, 2, 3:
			m.startCall()
		case 4, 5, 6, 7:
			m.answerOne()
		case 8:
			m.mu.Lock()
			m.die()
			m.mu.Unlock()
		case 9:
			time.Sleep(time.Duration(m.random.IntN(20)) * time.Minute)
		case 10:
			m.race()
		case 11:
			synctest.Wait()
			m.mu.Lock()
			m.kind, m.version = ferrule.Kind(pick(m.random, "k1", "k1", "k2")), pick(m.random, "v1", "v1", "v1", "v2")
			m.mu.Unlock()
		}
		if m.random.IntN(2) == 0 {
			synctest.Wait()
		}
		m.restart()
	}
	m.cancel()
	m.calls.Wait()
	m.approvals.Close()
}

func pick(r *rand.Rand, all ...string) string { return all[r.IntN(len(all))] }

func (m *misuse) startCall() {
	who := ferrule.Principal{Role: ferrule.Agent, Name: pick(m.random, "robby", "robby", "bobby"), Auth: ferrule.AuthToken}
	if m.random.IntN(6) == 0 {
		who = anna
	}
	c := burn(who, pick(m.random, `{"a":1,"b":2}`, `{"b":2,"a":1}`, `{"a":2,"b":1}`))
	c.ID = fmt.Sprintf("%d-", m.run)
	handle, ctx, cancel := m.handle, m.ctx, context.CancelFunc(func() {})
	if m.random.IntN(3) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(m.random.IntN(120))*time.Second)
	}
	m.calls.Go(func() {
		defer cancel()
		handle(ctx, &c)
	})
}

// execute checks an execution. What a gateway would do after its crash does not happen.
func (m *misuse) execute(call *ferrule.Call) {
	if m.dead || !strings.HasPrefix(call.ID, fmt.Sprintf("%d-", m.run)) {
		return
	}
	m.executions++
	key := fmt.Sprintf("%s %s %s %s %s %s", call.Principal, call.Device, call.Tool, call.Args, call.Target.Device.Kind, m.version)
	c := m.credits[key]
	if c.n == 0 || time.Now().After(c.until) {
		m.t.Errorf("wrong execution of %s: %d approvals, until %v", key, c.n, c.until)
	}
	if c.n != anyNumber {
		c.n--
	}
	m.credits[key] = c
	m.maybeCrash()
}

// key identifies the call of a request.
func (m *misuse) key(a ferrule.Approval) string {
	return fmt.Sprintf("%s %s %s %s %s %s", a.Caller, a.Device, a.Tool, a.Args, a.Kind, m.version)
}

// answerOne answers a request, or one that has ended, as a person, as the caller or as an
// agent.
func (m *misuse) answerOne() {
	answer := approval.Answer{Allow: m.random.IntN(4) > 0}
	if answer.Allow {
		synctest.Wait() // calls that were approved before have run
	}
	var shown *ferrule.Approval
	all := m.approvals.List()
	for _, a := range all {
		m.ids = append(m.ids, a.ID)
	}
	if len(m.ids) == 0 {
		return
	}
	id := pick(m.random, m.ids...)
	for i := range all {
		if all[i].ID == id {
			shown = &all[i]
		}
	}
	who := []ferrule.Principal{anna, ben, ben, ben, robby, {Role: ferrule.Agent, Name: "ben"}}[m.random.IntN(6)]
	if answer.Allow && m.random.IntN(6) == 0 {
		answer.For = 10 * time.Minute
	}
	m.answered(shown, who, answer, func() bool {
		_, err := m.approvals.Answer(who, id, answer)
		return err == nil
	})
}

// answered answers, and notes what may run because of it. The note comes first, because
// the call may run at once.
func (m *misuse) answered(shown *ferrule.Approval, who ferrule.Principal, answer approval.Answer, do func() bool) {
	rightful := shown != nil && who.Role == ferrule.Person && !(answer.Allow && shown.Caller == who.String())
	if !rightful {
		if do() {
			m.t.Errorf("the answer %+v of %s counts: %+v", answer, who, shown)
		}
		return
	}
	m.mu.Lock()
	key := m.key(*shown)
	if m.credits[key].n == anyNumber && !answer.Allow {
		m.mu.Unlock()
		synctest.Wait() // a call that it has let through has run
		m.mu.Lock()
	}
	before := m.credits[key]
	if answer.Allow && shown.State == ferrule.ApprovalWaiting {
		next := credit{1, time.Now().Add(m.cfg.Keep)}
		if answer.For > 0 {
			next = credit{anyNumber, time.Now().Add(answer.For)}
		}
		m.credits[key] = next
	}
	m.mu.Unlock()
	counts := do()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.dead && !answer.Allow: // it may have crashed before; then the file decides
	case answer.Allow && !counts && shown.State == ferrule.ApprovalWaiting:
		m.credits[key] = before // it had ended
	case !answer.Allow && counts && shown.State == ferrule.ApprovalAllowed: // it was taken back
		if before = m.credits[key]; before.n != anyNumber {
			m.credits[key] = credit{before.n - 1, before.until}
		} else {
			m.credits[key] = credit{}
		}
	}
}

// race lets two people allow at once: exactly one of them does.
func (m *misuse) race() {
	synctest.Wait()
	for _, a := range m.approvals.List() {
		if a.State != ferrule.ApprovalWaiting || a.Caller == anna.String() {
			continue
		}
		m.answered(&a, ben, approval.Answer{Allow: true}, func() bool {
			var both sync.WaitGroup
			var errs [2]error
			for i, who := range []ferrule.Principal{anna, ben} {
				both.Go(func() { _, errs[i] = m.approvals.Answer(who, a.ID, approval.Answer{Allow: true}) })
			}
			both.Wait()
			if errs[0] == nil && errs[1] == nil {
				m.t.Error("both answers count")
			}
			return errs[0] == nil || errs[1] == nil
		})
		return
	}
}

// maybeCrash crashes at this moment, sometimes. It is called with mu held.
func (m *misuse) maybeCrash() {
	if m.crashing.IntN(12) == 0 {
		m.die()
	}
}

// die crashes the gateway. It is called with mu held.
func (m *misuse) die() {
	if m.dead {
		return
	}
	m.dead = true
	m.crashes++
	var err error
	if m.image, err = os.ReadFile(filepath.Join(m.dir, "approvals.jsonl")); err != nil && !os.IsNotExist(err) {
		m.t.Error(err)
	}
}

// restart starts a gateway with what a dead one left.
func (m *misuse) restart() {
	m.mu.Lock()
	dead := m.dead
	m.mu.Unlock()
	if !dead {
		return
	}
	m.cancel()
	m.calls.Wait()
	m.approvals.Close()
	if err := os.WriteFile(filepath.Join(m.dir, "approvals.jsonl"), m.image, 0o600); err != nil {
		m.t.Fatal(err)
	}
	kept := make(map[string]bool) // an answer that is not on disk does not count
	left, err := approval.Decode(m.image)
	if err != nil {
		m.t.Error(err)
	}
	for _, r := range left {
		if r.By != "" {
			kept[fmt.Sprintf("%s %s %s %s %s %s", r.Principal, r.Device, r.Tool, r.Args, r.Kind, r.Policy)] = true
		}
	}
	m.mu.Lock()
	for key := range m.credits {
		if !kept[key] {
			delete(m.credits, key)
		}
	}
	m.dead = false
	m.run++
	m.mu.Unlock()
	m.open()
	m.ctx, m.cancel = context.WithCancel(context.Background())
}
