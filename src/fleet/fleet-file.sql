-- The queue of a fleet in a file. The columns mean what they mean in the tables of a server.
CREATE TABLE fleet_version (version INTEGER NOT NULL);
INSERT INTO fleet_version VALUES (8);

CREATE TABLE fleet_schedules (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  about TEXT NOT NULL,
  what TEXT NOT NULL,
  targets INTEGER NOT NULL,
  shards INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  cron TEXT NOT NULL,
  who TEXT NOT NULL DEFAULT '',
  made INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  due INTEGER NOT NULL,
  missed INTEGER NOT NULL DEFAULT 0,
  missed_at INTEGER,
  missed_why TEXT,
  gap INTEGER NOT NULL,
  longest INTEGER NOT NULL,
  pool TEXT
);

CREATE TABLE fleet_scans (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  schedule INTEGER,
  about TEXT NOT NULL,
  what TEXT NOT NULL,
  targets INTEGER NOT NULL,
  shards INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'cancelled')),
  who TEXT NOT NULL DEFAULT '',
  made INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  ended INTEGER,
  pool TEXT
);

CREATE TABLE fleet_workers (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  seen INTEGER NOT NULL,
  expires INTEGER NOT NULL
);

CREATE TABLE fleet_shards (
  scan INTEGER NOT NULL,
  number INTEGER NOT NULL,
  total INTEGER NOT NULL,
  state TEXT NOT NULL DEFAULT 'ready' CHECK (state IN ('ready', 'leased', 'done', 'parked', 'cancelled')),
  worker INTEGER,
  token INTEGER NOT NULL DEFAULT 0,
  step INTEGER NOT NULL DEFAULT 0,
  over INTEGER NOT NULL DEFAULT 0,
  over_to INTEGER NOT NULL DEFAULT 0,
  over_bits BLOB NOT NULL DEFAULT x'',
  counts TEXT NOT NULL DEFAULT '{}',
  attempts INTEGER NOT NULL DEFAULT 0,
  leases INTEGER NOT NULL DEFAULT 0,
  error TEXT,
  began INTEGER,
  ended INTEGER,
  PRIMARY KEY (scan, number)
) WITHOUT ROWID;
CREATE INDEX fleet_shards_ready ON fleet_shards (scan, number) WHERE state = 'ready';
CREATE INDEX fleet_shards_leased ON fleet_shards (worker) WHERE state = 'leased';

CREATE TABLE fleet_limits (
  scan INTEGER NOT NULL,
  number INTEGER NOT NULL,
  network TEXT,
  rate INTEGER NOT NULL,
  PRIMARY KEY (scan, number)
) WITHOUT ROWID;

CREATE TABLE fleet_shares (
  scan INTEGER NOT NULL,
  number INTEGER NOT NULL,
  worker INTEGER NOT NULL,
  rate INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  PRIMARY KEY (scan, number, worker)
) WITHOUT ROWID;

CREATE TABLE fleet_results (
  scan INTEGER NOT NULL,
  shard INTEGER NOT NULL,
  position INTEGER NOT NULL,
  address TEXT NOT NULL,
  port INTEGER NOT NULL,
  state TEXT NOT NULL,
  matched INTEGER NOT NULL,
  json TEXT NOT NULL,
  csv TEXT NOT NULL,
  PRIMARY KEY (scan, shard, position)
);

CREATE TRIGGER fleet_cut AFTER INSERT ON fleet_scans BEGIN
  -- Of shard n of N the targets are n, n + N, n + 2 N …; the array has an element for each shard.
  INSERT INTO fleet_shards (scan, number, total)
    SELECT NEW.id, key, (NEW.targets - key + NEW.shards - 1) / NEW.shards
    FROM json_each('[' || rtrim(replace(hex(zeroblob(NEW.shards)), '00', '0,'), ',') || ']');
  INSERT INTO fleet_limits (scan, number, network, rate)
    SELECT NEW.id, 0, NULL, json_extract(NEW.what, '$.rate') * 1000
    WHERE json_extract(NEW.what, '$.rate') IS NOT NULL;
  INSERT INTO fleet_limits (scan, number, network, rate)
    SELECT NEW.id, key + 1, json_extract(value, '$.network'), json_extract(value, '$.rate') * 1000
    FROM json_each(NEW.what, '$.order.limits');
END;

CREATE TRIGGER fleet_pool_kept AFTER INSERT ON fleet_scans WHEN NEW.pool IS NOT NULL BEGIN
  DELETE FROM fleet_scans WHERE pool = NEW.pool AND state <> 'open' AND id <=
    (SELECT id FROM fleet_scans WHERE pool = NEW.pool ORDER BY id DESC LIMIT 1 OFFSET 100);
END;

CREATE TRIGGER fleet_forget AFTER DELETE ON fleet_scans BEGIN
  DELETE FROM fleet_shards WHERE scan = OLD.id;
  DELETE FROM fleet_limits WHERE scan = OLD.id;
  DELETE FROM fleet_shares WHERE scan = OLD.id;
  DELETE FROM fleet_results WHERE scan = OLD.id;
END;
