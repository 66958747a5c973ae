package httpclient

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A connection to a computer can be used again, and to make one takes as long as a
// quick answer. So a device that says how long it keeps them open has them used
// again, by requests that do no harm if they come to nothing: on a connection that was
// there before, a device that has lost power meanwhile cannot be told from one that
// took a request and did not answer.

const (
	// keepTime is how long a connection is kept that nothing is sent on.
	keepTime = time.Second
	// leastKeep is how long a device has to keep one at least, so that it does not end
	// it while a request is on its way.
	leastKeep = 5 * time.Second
	// restTime and maxRest bound what may follow an answer in a stream.
	restTime = time.Second
	maxRest  = 4 << 10
)

// learn notes whether the device keeps connections open.
func (r *request) learn(answer *http.Response) {
	keeps := keptFor(answer.Header.Get("Keep-Alive")) >= leastKeep && !(r.again && answer.Close)
	r.carrier.keeps.Store(keeps)
}

// keptFor is how long a connection is kept open, as a header says: timeout=5, max=100.
func keptFor(header string) time.Duration {
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if seconds, err := strconv.Atoi(value); strings.EqualFold(name, "timeout") && err == nil && seconds > 0 && seconds < 1<<20 {
			return time.Duration(seconds) * time.Second
		}
	}
	return 0
}

// rest reads what follows an answer in a stream, which is its end and nothing else:
// without that its connection cannot be used again. Whoever has the answer does not wait
// for it, and may be gone before.
func (r *request) rest(body io.Reader, end func()) {
	r.detach()
	go func() {
		slow := time.AfterFunc(restTime, r.cancel)
		io.CopyN(io.Discard, body, maxRest) // however it ends, it is closed now
		slow.Stop()
		end()
	}()
}
