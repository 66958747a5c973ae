package gateway

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// slowJournal keeps records in memory, once the disk works.
type slowJournal struct {
	begun   chan struct{} // gets a value for each record
	works   chan struct{} // closed if the disk works; nil if it always does
	entries []ferrule.Entry
}

func (j *slowJournal) Append(e ferrule.Entry, _ bool) error {
	if j.works != nil {
		j.begun <- struct{}{}
		<-j.works
	}
	j.entries = append(j.entries, e)
	return nil
}

// attempted returns how many attempts the records stand for.
func (j *slowJournal) attempted() (n int) {
	for _, e := range j.entries {
		more := 0
		if fmt.Sscanf(e.Message, "%d more ", &more); more == 0 {
			more = 1
		}
		n += more
	}
	return n
}

func testAccess(j *slowJournal, log *strings.Builder) (a *access, counted map[string]int) {
	counted = make(map[string]int)
	return newAccess(accessParts{Journal: j, Log: slog.New(slog.NewTextHandler(log, nil)), Count: func(event ferrule.AccessEvent, refused bool) {
		counted[fmt.Sprint(event, " ", refused)]++
	}}), counted
}

// TestRefusedAccess checks that refused attempts leave few records and log lines, however
// many there are and from however many addresses, and that all of them are counted.
func TestRefusedAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j slowJournal
		var log strings.Builder
		a, counted := testAccess(&j, &log)
		const minutes, addresses, each = 3, 200, 30
		tried := 0
		for minute := range minutes {
			for i := range addresses {
				for n := range each {
					from := fmt.Sprintf("192.0.2.%d:%d", i, 1000+n)
					if i%2 == 0 { // all of one network
						from = fmt.Sprintf("[2001:db8:0:%x::%x]:80", i, n)
					}
					a.record(ferrule.Principal{}, ferrule.AccessTokenUsed, from, "unknown token", ferrule.Denied)
					tried++
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			limit := (strangerRules.Keys+1)*(strangerRules.First+1) + minute*(strangerRules.Keys+1)
			if n := len(j.entries); n > limit {
				t.Fatalf("%d records after %d minutes, want at most %d", n, minute+1, limit)
			}
		}
		thief := ferrule.Principal{Role: ferrule.Agent, Name: "claude", Auth: ferrule.AuthOAuth}
		a.record(thief, ferrule.AccessTokenUsed, "192.0.2.1:1", "it may be stolen", ferrule.Denied)
		tried++
		synctest.Wait()
		if last := j.entries[len(j.entries)-1]; last.Message != "it may be stolen" || last.Principal != thief {
			t.Errorf("a known caller is lost among strangers: %+v", last)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := j.attempted(); n != tried || counted["token_used true"] != tried {
			t.Errorf("the records have %d of %d attempts, the metric has %v", n, tried, counted)
		}
		if n := strings.Count(log.String(), "\n"); n != len(j.entries) {
			t.Errorf("%d lines are logged for %d records", n, len(j.entries))
		}
		first := j.entries[0]
		if first.Phase != ferrule.Access || first.Code != ferrule.Denied || first.Tool != "token_used" || first.From != "2001:db8:0:0::0" || first.Message != "unknown token" || first.Principal.Role != ferrule.Unverified {
			t.Errorf("got %+v", first)
		}
		var text strings.Builder
		for _, e := range j.entries {
			fmt.Fprintf(&text, "%s|%s\n", e.From, e.Message)
		}
		for _, want := range []string{
			"2001:db8::/64|27 more from 2001:db8::/64, the last one: unknown token\n", "192.0.2.1|30 more from 192.0.2.1, the last one: unknown token\n", "|5037 more from other addresses, the last one: ",
		} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("missing: %q", want)
			}
		}
		if t.Failed() {
			t.Logf("%.4000s", text.String())
		}
	})
}

// TestAccessOfPeopleAndAgents checks that what people do is recorded one by one, and that an
// agent which uses its token from many addresses cannot fill the disk.
func TestAccessOfPeopleAndAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j slowJournal
		var log strings.Builder
		a, _ := testAccess(&j, &log)
		anna := ferrule.Principal{Role: ferrule.Person, Name: "anna", Auth: ferrule.AuthLogin}
		for i := range 300 {
			a.record(anna, ferrule.AccessTokenRevoked, "", fmt.Sprint("token ", i), "")
		}
		synctest.Wait()
		if len(j.entries) != 300 || j.entries[299].Message != "token 299" {
			t.Errorf("%d of 300 records of a person", len(j.entries))
		}
		j.entries = nil
		for i := range 1000 {
			who := ferrule.Principal{Role: ferrule.Agent, Name: fmt.Sprint("oauth:anna/agent-", i), Auth: ferrule.AuthOAuth, Scopes: ferrule.LimitTo(ferrule.ScopeRead)}
			a.record(who, ferrule.AccessTokenUsed, fmt.Sprint("10.0.0.", i%250), "used", "")
		}
		a.close()
		n := len(j.entries)
		if last := j.entries[n-1]; n != knownRules.First+1 || j.attempted() != 1000 || last.Principal.Name != "oauth:anna" || last.Code != "" || !strings.HasPrefix(last.Message, "940 more by agent:oauth:anna, ") {
			t.Errorf("%d records, the last is %+v", n, last)
		}
		if log.Len() > 0 {
			t.Errorf("what was permitted is logged as a problem: %s", &log)
		}
	})
}

// TestAccessNeverWaits checks that nobody waits for a disk that is stuck, that what does not
// fit is counted, and that texts are clean.
func TestAccessNeverWaits(t *testing.T) {
	j := slowJournal{begun: make(chan struct{}, maxAccessWaiting+10), works: make(chan struct{})}
	var log strings.Builder
	a, _ := testAccess(&j, &log)
	anna := ferrule.Principal{Role: ferrule.Person, Name: "an\x1b[31mna"}
	a.record(anna, ferrule.AccessLogin, "192.0.2.1", "one\n\x07two "+strings.Repeat("x", 10000), "")
	<-j.begun
	for range maxAccessWaiting + 5 {
		a.record(anna, ferrule.AccessLogin, "192.0.2.1", "again", "")
	}
	close(j.works)
	a.close()
	n := len(j.entries)
	if last := j.entries[n-1]; n != maxAccessWaiting+2 || last.Phase != ferrule.JournalGap || !strings.HasPrefix(last.Message, "5 records of logins and tokens missing") {
		t.Errorf("%d records, the last is %+v", n, last)
	}
	if e := j.entries[0]; strings.ContainsAny(e.Principal.Name, "\x1b") || !strings.HasPrefix(e.Message, "one two xxx") || len(e.Message) > maxAccessMessage+4 {
		t.Errorf("%q: %.20q, %d bytes", e.Principal.Name, e.Message, len(e.Message))
	}
}
