package history

import (
	"context"
	"fmt"
)

// version is that of the tables and views.
const version = 2

// tables are what the store writes. Times are in microseconds, minutes and hours are
// counted since 1970.
const tables = `
CREATE TABLE place(one INTEGER PRIMARY KEY CHECK(one = 1), at TEXT NOT NULL);
CREATE TABLE known(id INTEGER PRIMARY KEY, device TEXT NOT NULL, signal TEXT NOT NULL, unit TEXT NOT NULL, first INTEGER NOT NULL,
	last INTEGER NOT NULL, value REAL NOT NULL, within INTEGER NOT NULL, open INTEGER NOT NULL, UNIQUE(device, signal));
CREATE TABLE batch(batch INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL);
CREATE INDEX batch_last ON batch(last);
CREATE TABLE raw(batch INTEGER NOT NULL, id INTEGER NOT NULL, at INTEGER NOT NULL, value REAL NOT NULL, within INTEGER NOT NULL,
	PRIMARY KEY(batch, id, at)) WITHOUT ROWID;
CREATE TABLE minute(id INTEGER NOT NULL, at INTEGER NOT NULL, least REAL NOT NULL, most REAL NOT NULL, total REAL NOT NULL, count INTEGER NOT NULL,
	PRIMARY KEY(id, at)) WITHOUT ROWID;
CREATE TABLE hour(id INTEGER NOT NULL, at INTEGER NOT NULL, least REAL NOT NULL, most REAL NOT NULL, total REAL NOT NULL, count INTEGER NOT NULL,
	PRIMARY KEY(id, at)) WITHOUT ROWID;
CREATE TABLE gap(id INTEGER NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL, why TEXT NOT NULL, most INTEGER NOT NULL,
	PRIMARY KEY(id, since)) WITHOUT ROWID;
`

// Numbers may be so large that their sum is none any more. A sum is kept within what can
// be written, and a mean between the least and the most that it is of.
const (
	sumOfValues = "max(-1e308, min(1e308, sum(r.value)))"
	sumOfTotals = "coalesce(max(-1e308, min(1e308, sum(total))), 0)"
	meanOfAll   = "max(least, min(most, total/count))"
)

// uncounted is the samples of each signal that are not counted in a minute yet. Of most
// signals that are not measured any more there are none.
const uncounted = `known k JOIN batch b ON k.last >= k.open*60000000 AND b.last >= k.open*60000000 AND b.first < (k.open + 1)*60000000
		JOIN raw r ON r.batch = b.batch AND r.id = k.id AND r.at >= k.open*60000000`

// newestOf is the last of them.
const newestOf = `SELECT k.id AS of, max(r.at) AS at, r.value AS newest, r.within AS off FROM ` + uncounted + ` GROUP BY k.id`

// openMinutes are the minutes that they are of.
const openMinutes = `SELECT k.id, r.at/60000000 AS at, min(r.value) AS least, max(r.value) AS most, ` + sumOfValues + ` AS total, count(*) AS count
		FROM ` + uncounted + ` GROUP BY k.id, r.at/60000000`

// views are what others read. Times are in seconds since 1970, such as datetime(time,
// 'unixepoch') takes them. What is not counted yet is counted here.
const views = `
CREATE VIEW signals AS SELECT device, signal, unit, first/1e6 AS first, max(last, coalesce(at, last))/1e6 AS last, iif(at > last, newest, value) AS value
	FROM known LEFT JOIN (` + newestOf + `) ON of = id;
CREATE VIEW samples AS SELECT k.device, k.signal, r.at/1e6 AS time, r.value, r.within/1e6 AS within
	FROM known k JOIN batch b JOIN raw r ON r.batch = b.batch AND r.id = k.id;
CREATE VIEW minutes AS
	SELECT k.device, k.signal, m.at*60 AS time, least AS min, most AS max, ` + meanOfAll + ` AS mean, count
		FROM known k JOIN minute m ON m.id = k.id
	UNION ALL
	SELECT k.device, k.signal, m.at*60, least, most, ` + meanOfAll + `, count
		FROM known k JOIN (` + openMinutes + `) m ON m.id = k.id;
CREATE VIEW hours AS
	SELECT k.device, k.signal, h.at*3600 AS time, least AS min, most AS max, ` + meanOfAll + ` AS mean, count
		FROM known k JOIN hour h ON h.id = k.id
	UNION ALL
	SELECT k.device, k.signal, h.at*3600, least, most, ` + meanOfAll + `, count FROM known k JOIN (
		SELECT id, at/60 AS at, min(least) AS least, max(most) AS most, ` + sumOfTotals + ` AS total, sum(count) AS count FROM (
			SELECT m.* FROM known k JOIN minute m ON m.id = k.id AND m.at >= k.open/60*60
			UNION ALL
			` + openMinutes + `
		) GROUP BY id, at/60
	) h ON h.id = k.id;
CREATE VIEW holes AS SELECT k.device, k.signal, g.since/1e6 AS "from", g.until/1e6 AS "to", g.why, g.most FROM known k JOIN gap g ON g.id = k.id;
`

// dropViews makes way for those of another version.
const dropViews = `DROP VIEW signals; DROP VIEW samples; DROP VIEW minutes; DROP VIEW hours; DROP VIEW holes;`

// migrate makes the tables of a new file, and the views of one that has others.
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
	case 1:
		script = dropViews + views
	default:
		return fmt.Errorf("%s is of version %d, and this program knows %d: it was written by a newer one", s.path, is, version)
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
