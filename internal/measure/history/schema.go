package history

import (
	"context"
	"fmt"
)

// version is the version of the tables and views.
const version = 4

// tables are private to the store. Times are microseconds since 1970; in minute and hour
// they are minutes and hours since 1970.
const tables = `
CREATE TABLE position(one INTEGER PRIMARY KEY CHECK(one = 1), at TEXT NOT NULL);
CREATE TABLE signal(id INTEGER PRIMARY KEY, device TEXT NOT NULL, signal TEXT NOT NULL, unit TEXT NOT NULL, first INTEGER NOT NULL,
	last INTEGER NOT NULL, value REAL NOT NULL, within INTEGER NOT NULL, open INTEGER NOT NULL, state INTEGER NOT NULL DEFAULT 0, UNIQUE(device, signal));
CREATE TABLE batch(batch INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL);
CREATE INDEX batch_last ON batch(last);
CREATE TABLE raw(batch INTEGER NOT NULL, id INTEGER NOT NULL, at INTEGER NOT NULL, value REAL NOT NULL, within INTEGER NOT NULL,
	PRIMARY KEY(batch, id, at)) WITHOUT ROWID;
CREATE TABLE minute(id INTEGER NOT NULL, at INTEGER NOT NULL, min REAL NOT NULL, max REAL NOT NULL, total REAL NOT NULL, count INTEGER NOT NULL,
	PRIMARY KEY(id, at)) WITHOUT ROWID;
CREATE TABLE hour(id INTEGER NOT NULL, at INTEGER NOT NULL, min REAL NOT NULL, max REAL NOT NULL, total REAL NOT NULL, count INTEGER NOT NULL,
	PRIMARY KEY(id, at)) WITHOUT ROWID;
CREATE TABLE gap(id INTEGER NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL, reason TEXT NOT NULL, max_missing INTEGER NOT NULL,
	PRIMARY KEY(id, since)) WITHOUT ROWID;
`

// A sum of large numbers may overflow. It is kept in the range of a number, and a mean
// between the minimum and the maximum.
const (
	sumOfValues = "max(-1e308, min(1e308, sum(r.value)))"
	sumOfTotals = "coalesce(max(-1e308, min(1e308, sum(total))), 0)"
	meanOfAll   = "max(min, min(max, total/count))"
)

// uncounted are the samples of each signal that are in no row of minute yet. Most idle
// signals have none.
const uncounted = `signal s JOIN batch b ON s.last >= s.open*60000000 AND b.last >= s.open*60000000 AND b.first < (s.open + 1)*60000000
		JOIN raw r ON r.batch = b.batch AND r.id = s.id AND r.at >= s.open*60000000`

// newestOf selects the newest uncounted sample of each signal.
const newestOf = `SELECT s.id AS of, max(r.at) AS at, r.value AS newest, r.within AS off FROM ` + uncounted + ` GROUP BY s.id`

// openMinutes selects the minutes of uncounted samples.
const openMinutes = `SELECT s.id, r.at/60000000 AS at, min(r.value) AS min, max(r.value) AS max, ` + sumOfValues + ` AS total, count(*) AS count
		FROM ` + uncounted + ` GROUP BY s.id, r.at/60000000`

// views are for SQL queries of users; docs/reference/history.md describes them. Times are seconds
// since 1970, as datetime(time, 'unixepoch') takes them. Minutes and hours include the
// uncounted samples.
const views = `
CREATE VIEW signals AS SELECT device, signal, unit, first/1e6 AS first, max(last, coalesce(at, last))/1e6 AS last, iif(at > last, newest, value) AS value
	FROM signal LEFT JOIN (` + newestOf + `) ON of = id;
CREATE VIEW samples AS SELECT s.device, s.signal, r.at/1e6 AS time, r.value, r.within/1e6 AS within
	FROM signal s JOIN batch b JOIN raw r ON r.batch = b.batch AND r.id = s.id;
CREATE VIEW minutes AS
	SELECT s.device, s.signal, m.at*60 AS time, min, max, ` + meanOfAll + ` AS mean, count
		FROM signal s JOIN minute m ON m.id = s.id
	UNION ALL
	SELECT s.device, s.signal, m.at*60, min, max, ` + meanOfAll + `, count
		FROM signal s JOIN (` + openMinutes + `) m ON m.id = s.id;
CREATE VIEW hours AS
	SELECT s.device, s.signal, h.at*3600 AS time, min, max, ` + meanOfAll + ` AS mean, count
		FROM signal s JOIN hour h ON h.id = s.id
	UNION ALL
	SELECT s.device, s.signal, h.at*3600, min, max, ` + meanOfAll + `, count FROM signal s JOIN (
		SELECT id, at/60 AS at, min(min) AS min, max(max) AS max, ` + sumOfTotals + ` AS total, sum(count) AS count FROM (
			SELECT m.* FROM signal s JOIN minute m ON m.id = s.id AND m.at >= s.open/60*60
			UNION ALL
			` + openMinutes + `
		) GROUP BY id, at/60
	) h ON h.id = s.id;
CREATE VIEW gaps AS SELECT s.device, s.signal, g.since/1e6 AS "from", g.until/1e6 AS "to", g.reason, g.max_missing FROM signal s JOIN gap g ON g.id = s.id;
`

// upgrade turns the tables of versions 1 and 2 into those of version 3. The views of both
// are dropped first, because a view prevents the renaming of a column.
const upgrade = `
DROP VIEW signals; DROP VIEW samples; DROP VIEW minutes; DROP VIEW hours; DROP VIEW holes;
ALTER TABLE place RENAME TO position;
ALTER TABLE known RENAME TO signal;
ALTER TABLE minute RENAME COLUMN least TO min; ALTER TABLE minute RENAME COLUMN most TO max;
ALTER TABLE hour RENAME COLUMN least TO min; ALTER TABLE hour RENAME COLUMN most TO max;
ALTER TABLE gap RENAME COLUMN why TO reason; ALTER TABLE gap RENAME COLUMN most TO max_missing;
`

// addState turns the tables of version 3 into those of version 4.
const addState = "ALTER TABLE signal ADD COLUMN state INTEGER NOT NULL DEFAULT 0;"

// migrate creates the tables and views of a new file, and upgrades those of an old one.
func (s *Store) migrate(ctx context.Context) error {
	var is int
	if err := s.write.QueryRowContext(ctx, "PRAGMA user_version").Scan(&is); err != nil {
		return err
	}
	script := ""
	switch is {
	case version:
		return nil
	case 0:
		script = tables + views
	case 1, 2:
		script = upgrade + addState + views
	case 3:
		script = addState
	default:
		return fmt.Errorf("%s has version %d, written by a newer Ferrule; this one supports up to version %d", s.path, is, version)
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, script+fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
		return err
	}
	return tx.Commit()
}
