package history

import (
	"context"
	"fmt"
)

// version is that of the tables.
const version = 1

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

// views are what others read. Times are in seconds since 1970, such as datetime(time,
// 'unixepoch') takes them. What is not counted yet is counted here.
const views = `
CREATE VIEW signals AS SELECT device, signal, unit, first/1e6 AS first, last/1e6 AS last, value FROM known;
CREATE VIEW samples AS SELECT k.device, k.signal, r.at/1e6 AS time, r.value, r.within/1e6 AS within
	FROM known k JOIN batch b JOIN raw r ON r.batch = b.batch AND r.id = k.id;
CREATE VIEW minutes AS
	SELECT k.device, k.signal, m.at*60 AS time, m.least AS min, m.most AS max, m.total/m.count AS mean, m.count
		FROM known k JOIN minute m ON m.id = k.id
	UNION ALL
	SELECT k.device, k.signal, r.at/60000000*60, min(r.value), max(r.value), sum(r.value)/count(*), count(*)
		FROM known k JOIN batch b ON b.last >= k.open*60000000 JOIN raw r ON r.batch = b.batch AND r.id = k.id AND r.at >= k.open*60000000
		GROUP BY k.id, r.at/60000000;
CREATE VIEW hours AS
	SELECT k.device, k.signal, h.at*3600 AS time, h.least AS min, h.most AS max, h.total/h.count AS mean, h.count
		FROM known k JOIN hour h ON h.id = k.id
	UNION ALL
	SELECT device, signal, time/3600*3600, min(min), max(max), sum(mean*count)/sum(count), sum(count) FROM (
		SELECT k.device, k.signal, m.at*60 AS time, m.least AS min, m.most AS max, m.total/m.count AS mean, m.count
			FROM known k JOIN minute m ON m.id = k.id AND m.at >= k.open/60*60
		UNION ALL
		SELECT k.device, k.signal, r.at/60000000*60, min(r.value), max(r.value), sum(r.value)/count(*), count(*)
			FROM known k JOIN batch b ON b.last >= k.open*60000000 JOIN raw r ON r.batch = b.batch AND r.id = k.id AND r.at >= k.open*60000000
			GROUP BY k.id, r.at/60000000
	) GROUP BY device, signal, time/3600;
CREATE VIEW holes AS SELECT k.device, k.signal, g.since/1e6 AS "from", g.until/1e6 AS "to", g.why, g.most FROM known k JOIN gap g ON g.id = k.id;
`

// migrate makes the tables of a new file.
func (s *Store) migrate(ctx context.Context) error {
	var is int
	if err := s.write.QueryRowContext(ctx, "PRAGMA user_version").Scan(&is); err != nil {
		return err
	}
	switch {
	case is == version:
		return nil
	case is != 0:
		return fmt.Errorf("%s is of version %d, and this program knows %d: it was written by a newer one", s.path, is, version)
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, tables+views+fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
		return err
	}
	return tx.Commit()
}
