-- The queue of a fleet: scans, their shards, who works on them, and what came of it. Beside the inventory's tables, with a
-- version of its own. Times are milliseconds since the Unix epoch by the server's clock.
CREATE TABLE bannerwall.fleet_version (version bigint NOT NULL);
INSERT INTO bannerwall.fleet_version VALUES (1);

CREATE FUNCTION bannerwall.fleet_now() RETURNS bigint LANGUAGE sql VOLATILE
  AS $$SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint$$;

CREATE TABLE bannerwall.fleet_schedules (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  about text NOT NULL,                    -- for a person
  what text NOT NULL,                     -- what is scanned, as JSON
  targets bigint NOT NULL,
  shards bigint NOT NULL,
  attempts bigint NOT NULL,
  cron text NOT NULL,                     -- 30 3 * * 1-5 Europe/Berlin
  who text NOT NULL DEFAULT current_user,
  made bigint NOT NULL DEFAULT bannerwall.fleet_now(),
  due bigint NOT NULL,
  missed bigint NOT NULL DEFAULT 0,       -- how often it was due and not begun
  missed_at bigint,
  missed_why text
);

CREATE TABLE bannerwall.fleet_scans (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  schedule bigint,
  about text NOT NULL,
  what text NOT NULL,
  targets bigint NOT NULL,
  shards bigint NOT NULL,
  attempts bigint NOT NULL,               -- how often a shard may fail before it is parked
  state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'cancelled')),
  who text NOT NULL DEFAULT current_user,
  made bigint NOT NULL DEFAULT bannerwall.fleet_now(),
  ended bigint
);

-- Grows with each lease: who holds an older one than the row writes nothing more.
CREATE SEQUENCE bannerwall.fleet_token;

-- Those whose lease is over have died, or cannot reach the server.
CREATE TABLE bannerwall.fleet_workers (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL,
  since bigint NOT NULL DEFAULT bannerwall.fleet_now(),
  seen bigint NOT NULL,
  expires bigint NOT NULL
);

CREATE TABLE bannerwall.fleet_shards (
  scan bigint NOT NULL REFERENCES bannerwall.fleet_scans ON DELETE CASCADE,
  number bigint NOT NULL,                 -- from 0: targets number, number + shards, number + 2 shards … of the order
  total bigint NOT NULL,
  state text NOT NULL DEFAULT 'ready' CHECK (state IN ('ready', 'leased', 'done', 'parked', 'cancelled')),
  worker bigint,
  token bigint NOT NULL DEFAULT 0,
  step bigint NOT NULL DEFAULT 0,         -- batches that were written: of one whose answer was lost it tells
  over bigint NOT NULL DEFAULT 0,         -- targets that are over: those below over_to, and those with a bit behind it
  over_to bigint NOT NULL DEFAULT 0,
  over_bits bytea NOT NULL DEFAULT '',
  counts text NOT NULL DEFAULT '{}',      -- what came of them, as JSON
  attempts bigint NOT NULL DEFAULT 0,     -- how often it failed since it came forward last
  leases bigint NOT NULL DEFAULT 0,       -- how often it was taken
  error text,
  began bigint,
  ended bigint,
  PRIMARY KEY (scan, number)
) WITH (fillfactor = 70);
CREATE INDEX fleet_shards_ready ON bannerwall.fleet_shards (scan, number) WHERE state = 'ready';
CREATE INDEX fleet_shards_leased ON bannerwall.fleet_shards (worker) WHERE state = 'leased';

-- How fast a scan may be, all workers together: 0 for all targets, others for a network. In a thousand seconds.
CREATE TABLE bannerwall.fleet_limits (
  scan bigint NOT NULL REFERENCES bannerwall.fleet_scans ON DELETE CASCADE,
  number bigint NOT NULL,
  network text,
  rate bigint NOT NULL,
  PRIMARY KEY (scan, number)
);

-- What of it a worker may use until a time.
CREATE TABLE bannerwall.fleet_shares (
  scan bigint NOT NULL,
  number bigint NOT NULL,
  worker bigint NOT NULL,
  rate bigint NOT NULL,
  expires bigint NOT NULL,
  PRIMARY KEY (scan, number, worker),
  FOREIGN KEY (scan, number) REFERENCES bannerwall.fleet_limits ON DELETE CASCADE
);

-- What came of each target that is told of, once.
CREATE TABLE bannerwall.fleet_results (
  scan bigint NOT NULL,
  shard bigint NOT NULL,
  position bigint NOT NULL,               -- in the shard
  address text NOT NULL,
  port bigint NOT NULL,
  state text NOT NULL,
  matched boolean NOT NULL,
  json text NOT NULL,                     -- events as EVE spells them, a line each
  csv text NOT NULL,                      -- the same as records
  PRIMARY KEY (scan, shard, position)
);

-- A worker is there; what those held that are not is handed on. The time by the server's clock.
CREATE FUNCTION bannerwall.fleet_beat(me bigint, lease bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  at bigint := bannerwall.fleet_now();
  handed_on bigint;
BEGIN
  UPDATE bannerwall.fleet_workers SET seen = at, expires = at + lease WHERE id = me;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  -- Nobody was able to tell while the server was away: for the length of a lease it waits for all.
  IF extract(epoch FROM pg_postmaster_start_time()) * 1000 < at - lease THEN
    UPDATE bannerwall.fleet_shards s SET worker = NULL, token = nextval('bannerwall.fleet_token'),
      attempts = s.attempts + 1, error = gone.said,
      state = CASE WHEN gone.scan_state = 'cancelled' THEN 'cancelled'
                   WHEN s.attempts + 1 >= gone.most THEN 'parked' ELSE 'ready' END
    FROM (
      SELECT s.scan, s.number, f.state AS scan_state, f.attempts AS most,
        'worker ' || w.name || ' was not heard of any more' AS said
      FROM bannerwall.fleet_workers w
      JOIN bannerwall.fleet_shards s ON s.worker = w.id AND s.state = 'leased'
      JOIN bannerwall.fleet_scans f ON f.id = s.scan
      WHERE w.expires <= at FOR UPDATE OF s SKIP LOCKED
    ) gone
    WHERE s.scan = gone.scan AND s.number = gone.number;
    GET DIAGNOSTICS handed_on = ROW_COUNT;
    IF handed_on > 0 THEN
      -- The last of a scan may have been parked.
      UPDATE bannerwall.fleet_scans f SET state = 'done', ended = at WHERE f.state = 'open'
        AND NOT EXISTS (SELECT FROM bannerwall.fleet_shards s WHERE s.scan = f.id AND s.state IN ('ready', 'leased'));
    END IF;
  END IF;
  RETURN at;
END $$;

-- A share of a limit for a worker that uses so much of it now: what it may use, and what would be fair. Whoever uses more
-- than is fair keeps that until it says that it uses less: in sum it is never more than the limit.
CREATE FUNCTION bannerwall.fleet_share(of_scan bigint, of_number bigint, me bigint, used bigint, lease bigint,
  OUT granted bigint, OUT fair bigint) LANGUAGE plpgsql AS $$
DECLARE
  at bigint;
  total bigint;
  others bigint;
  count bigint;
BEGIN
  SELECT rate INTO total FROM bannerwall.fleet_limits WHERE scan = of_scan AND number = of_number FOR UPDATE;
  at := bannerwall.fleet_now();
  SELECT coalesce(sum(rate), 0), count(*) INTO others, count FROM bannerwall.fleet_shares
    WHERE scan = of_scan AND number = of_number AND worker <> me AND expires > at;
  fair := total / (count + 1);
  granted := greatest(least(total - others, greatest(used, fair)), 0);
  INSERT INTO bannerwall.fleet_shares (scan, number, worker, rate, expires)
    VALUES (of_scan, of_number, me, granted, at + lease)
    ON CONFLICT (scan, number, worker) DO UPDATE SET rate = excluded.rate, expires = excluded.expires;
END $$;
