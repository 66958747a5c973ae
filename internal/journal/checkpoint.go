package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// HeadFile holds the newest head of the journal, signed. It shows that the end of the
// journal was cut off.
const HeadFile = "journal.head"

// A checkpoint is written so long after a record, or after so many.
const (
	checkpointInterval = time.Minute
	checkpointRecords  = 1000
)

// checkpointSoon schedules a checkpoint after records were written. It is called with mu held.
func (j *Journal) checkpointSoon(records int) {
	if records == 0 || j.closed {
		return
	}
	was := j.unsigned
	j.unsigned += records
	if !j.headSigned {
		j.headSigned = true
		time.AfterFunc(lazyDelay, j.signFirst)
	}
	switch {
	case j.signer == nil && j.overdue:
		j.overdue = false
		j.signer = time.AfterFunc(lazyDelay, j.checkpoint)
	case j.signer == nil:
		j.signer = time.AfterFunc(checkpointInterval, j.checkpoint)
	case was < checkpointRecords && j.unsigned >= checkpointRecords:
		j.signer.Reset(0)
	}
}

// signFirst signs the head of a new journal early.
func (j *Journal) signFirst() {
	j.signing.Lock()
	defer j.signing.Unlock()
	j.mu.Lock()
	closed := j.closed
	j.mu.Unlock()
	if !closed {
		j.logSigning(j.signHead())
	}
}

// checkpoint signs the journal in the background, and ends the segment when it is due.
func (j *Journal) checkpoint() {
	j.signing.Lock()
	defer j.signing.Unlock()
	j.mu.Lock()
	j.signer = nil
	j.checkFile()
	skip := j.closed || j.unsigned == 0
	if !skip && j.failure != nil { // until it can be written again
		skip = true
		j.signer = time.AfterFunc(checkpointInterval, j.checkpoint)
	}
	if !skip {
		j.unsigned = 0
	}
	j.mu.Unlock()
	if skip {
		return
	}
	if j.segmentDue() {
		j.logSigning(j.rotate()) // its seal is a checkpoint
		return
	}
	seq, err := j.addCheckpoint()
	if err == nil {
		err = j.sync(seq) // the head file names only what is on disk
	}
	if err == nil {
		err = j.signHead()
	}
	j.logSigning(err)
}

// checkFile stops the journal if its file was removed or exchanged: what is written then
// is lost. It is called with mu held.
func (j *Journal) checkFile() {
	if j.closed || j.dead || j.info == nil {
		return
	}
	if info, err := os.Stat(j.path); err != nil || !os.SameFile(info, j.info) {
		j.failure, j.dead = fmt.Errorf("journal: %s was removed or exchanged while the gateway runs", j.path), true
		j.logHealth(j.failure)
	}
}

// logSigning logs when signing starts to fail.
func (j *Journal) logSigning(err error) {
	if err != nil && !j.signingFailed {
		j.log.Error("journal not signed: changes of it cannot be detected", "err", err)
	}
	j.signingFailed = err != nil
}

// addCheckpoint appends a checkpoint to the file, and returns its number.
func (j *Journal) addCheckpoint() (seq uint64, err error) {
	j.disk.Lock()
	defer j.disk.Unlock()
	line, head, err := j.checkpointLine()
	if err != nil {
		return 0, err
	}
	if _, err := j.file.Write(line); err != nil {
		if failed := j.rollBack(); failed != nil {
			j.mu.Lock()
			j.failure, j.dead = fmt.Errorf("journal: %w", failed), true
			j.mu.Unlock()
		}
		return 0, err
	}
	j.size += int64(len(line))
	j.head = head
	return head.seq, nil
}

// checkpointLine returns the line of a checkpoint that follows the head, and its place in
// the chain. It is called with disk held.
func (j *Journal) checkpointLine() ([]byte, link, error) {
	if j.key == nil {
		var err error
		if j.key, err = makeKey(j.dir); err != nil {
			return nil, link{}, err
		}
	}
	e := ferrule.Entry{Time: time.Now(), Phase: ferrule.JournalCheckpoint, Checkpoint: hadRecord.sign(j.key, j.chain, j.head)}
	line, head := new(encoder).encode([]pending{{Entry: e}}, j.head)
	return line, head, nil
}

// signHead signs the newest synced record in the head file.
func (j *Journal) signHead() error {
	j.mu.Lock()
	chain, head := j.chain, j.syncedHead
	j.mu.Unlock()
	if head.seq == 0 || j.key == nil {
		return nil
	}
	data, err := json.Marshal(newestHead.sign(j.key, chain, head))
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(j.dir, HeadFile), append(data, '\n'))
}

// readHead reads the head file. The error is os.ErrNotExist if there is none.
func readHead(dir string) (*ferrule.Checkpoint, error) {
	const limit = 4 << 10
	path := filepath.Join(dir, HeadFile)
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if info.Size() > limit {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseHead(data)
}

func parseHead(data []byte) (*ferrule.Checkpoint, error) {
	c := &ferrule.Checkpoint{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("%s: %w", HeadFile, err)
	}
	if hash, err := hex.DecodeString(c.Hash); err != nil || len(hash) != sha256.Size || !isChainName(c.Chain) || c.Seq == 0 {
		return nil, fmt.Errorf("%s does not name a record", HeadFile)
	}
	return c, nil
}

// compareHead records that the journal is not the one that this node signed last: its end
// was cut off, or it was moved away. The next head would hide that. A node that had a key
// before has signed a head, too, unless it crashed in its first second.
func (j *Journal) compareHead(hadKey bool) error {
	signed, err := readHead(j.dir)
	switch {
	case errors.Is(err, os.ErrNotExist) && (!hadKey || j.head.seq == 0):
		return nil
	case errors.Is(err, os.ErrNotExist): // deleting the file must not be a way to have any journal signed
		const message = HeadFile + " is missing: records before this one may have been removed"
		j.log.Error("journal: " + message)
		return j.Append(ferrule.Entry{Phase: ferrule.JournalGap, Message: message}, false)
	case err != nil || j.key == nil || !newestHead.isSigned(signed) || signed.Key != string(publicKey(j.key)):
		const message = HeadFile + " was not signed with the key of this node: records before this one may have been removed"
		j.log.Error("journal: " + message)
		return j.Append(ferrule.Entry{Phase: ferrule.JournalGap, Message: message}, false)
	case j.head.seq == 0:
		return j.Append(ferrule.Entry{Phase: ferrule.JournalGap, Message: fmt.Sprintf(
			"a new journal: the one before it, %s, had %d records at %s", signed.Chain, signed.Seq, signed.Time.Format(time.RFC3339))}, false)
	case signed.Chain != j.chain:
		return j.cut(fmt.Sprintf("this is not the journal that was signed at %s: chain %s with %d records", signed.Time.Format(time.RFC3339), signed.Chain, signed.Seq))
	}
	switch has, err := Holds(j.dir, signed.Seq, signed.Hash); {
	case err != nil:
		return err
	case has:
		j.headSigned = true
		return nil
	case signed.Seq > j.head.seq:
		return j.cut(fmt.Sprintf("records %d to %d are missing: they were signed at %s and cut off later", j.head.seq+1, signed.Seq, signed.Time.Format(time.RFC3339)))
	}
	return j.cut(fmt.Sprintf("record %d is not the one that was signed at %s", signed.Seq, signed.Time.Format(time.RFC3339)))
}

// cut records that the journal was changed while the gateway did not run.
func (j *Journal) cut(message string) error {
	j.log.Error("journal: " + message + "; run `ferrule audit verify` for details")
	return j.Append(ferrule.Entry{Phase: ferrule.JournalCut, Message: message}, false)
}
