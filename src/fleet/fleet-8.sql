-- A shard's own number grows with each lease, in a file as well: whoever holds an older one writes nothing more.
ALTER TABLE bannerwall.fleet_workers ADD COLUMN IF NOT EXISTS who text NOT NULL DEFAULT session_user;

-- Each role may only show its own workers as alive, and delete its own or those that are silent for an hour.
ALTER TABLE bannerwall.fleet_workers ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS reading ON bannerwall.fleet_workers;
DROP POLICY IF EXISTS joining ON bannerwall.fleet_workers;
DROP POLICY IF EXISTS leaving ON bannerwall.fleet_workers;
CREATE POLICY reading ON bannerwall.fleet_workers FOR SELECT USING (true);
CREATE POLICY joining ON bannerwall.fleet_workers FOR INSERT
  WITH CHECK (who = session_user AND expires <= bannerwall.fleet_now() + 3600000);
CREATE POLICY leaving ON bannerwall.fleet_workers FOR DELETE
  USING (who = session_user OR expires < bannerwall.fleet_now() - 3600000);

CREATE OR REPLACE FUNCTION bannerwall.fleet_beat(me bigint, lease bigint) RETURNS bigint LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  at bigint := bannerwall.fleet_now();
  handed_on bigint;
BEGIN
  UPDATE bannerwall.fleet_workers SET seen = at, expires = at + least(lease, 3600000)
    WHERE id = me AND who = session_user;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  -- No worker could report while the server was away: each has the length of a lease to do so.
  IF extract(epoch FROM pg_postmaster_start_time()) * 1000 < at - lease THEN
    UPDATE bannerwall.fleet_shards s SET worker = NULL, token = s.token + 1,
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
REVOKE ALL ON FUNCTION bannerwall.fleet_beat(bigint, bigint) FROM PUBLIC;

-- A role takes shares of a limit for its own workers only, for an hour at most, and returns only theirs. A worker keeps no
-- more above the fair part than it was granted before.
CREATE OR REPLACE FUNCTION bannerwall.fleet_share(of_scan bigint, of_number bigint, me bigint, used bigint, lease bigint,
  OUT granted bigint, OUT fair bigint) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  at bigint;
  total bigint;
  others bigint;
  count bigint;
  before bigint;
BEGIN
  IF NOT EXISTS (SELECT FROM bannerwall.fleet_workers WHERE id = me AND who = session_user) THEN
    granted := 0;
    fair := 0;
    RETURN;
  END IF;
  SELECT rate INTO total FROM bannerwall.fleet_limits WHERE scan = of_scan AND number = of_number FOR UPDATE;
  at := bannerwall.fleet_now();
  SELECT coalesce(sum(rate) FILTER (WHERE worker <> me), 0), count(*) FILTER (WHERE worker <> me),
      coalesce(sum(rate) FILTER (WHERE worker = me), 0) INTO others, count, before
    FROM bannerwall.fleet_shares WHERE scan = of_scan AND number = of_number AND expires > at;
  fair := total / (count + 1);
  granted := greatest(least(total - others, greatest(least(used, before), fair)), 0);
  INSERT INTO bannerwall.fleet_shares (scan, number, worker, rate, expires)
    VALUES (of_scan, of_number, me, granted, at + least(lease, 3600000))
    ON CONFLICT (scan, number, worker) DO UPDATE SET rate = excluded.rate, expires = excluded.expires;
END $$;
REVOKE ALL ON FUNCTION bannerwall.fleet_share(bigint, bigint, bigint, bigint, bigint) FROM PUBLIC;
ALTER TABLE bannerwall.fleet_shares ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS reading ON bannerwall.fleet_shares;
DROP POLICY IF EXISTS leaving ON bannerwall.fleet_shares;
CREATE POLICY reading ON bannerwall.fleet_shares FOR SELECT USING (true);
CREATE POLICY leaving ON bannerwall.fleet_shares FOR DELETE
  USING (EXISTS (SELECT FROM bannerwall.fleet_workers WHERE id = worker AND who = session_user));

-- A role without the right to enter scans takes shards that wait for a worker, and writes those that its own workers hold.
CREATE OR REPLACE FUNCTION bannerwall.fleet_shard_changes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  holder bigint := CASE WHEN OLD.state = 'leased' THEN OLD.worker ELSE NEW.worker END;
BEGIN
  IF has_table_privilege('bannerwall.fleet_scans', 'INSERT') THEN
    RETURN NEW;
  END IF;
  IF EXISTS (SELECT FROM bannerwall.fleet_workers WHERE id = holder AND who = session_user)
    AND (NEW.scan, NEW.number, NEW.total) = (OLD.scan, OLD.number, OLD.total)
    AND (OLD.state = 'leased' OR (OLD.state = 'ready' AND NEW.state = 'leased' AND (NEW.step, NEW.over, NEW.over_to) =
      (OLD.step, OLD.over, OLD.over_to)))
    AND (NEW.state <> 'done' OR NEW.over >= NEW.total)
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'permission denied: a worker only writes shards that it holds' USING ERRCODE = 'insufficient_privilege';
END $$;
DROP TRIGGER IF EXISTS fleet_shard_changes ON bannerwall.fleet_shards;
CREATE TRIGGER fleet_shard_changes BEFORE UPDATE ON bannerwall.fleet_shards
  FOR EACH ROW EXECUTE FUNCTION bannerwall.fleet_shard_changes();
DROP SEQUENCE IF EXISTS bannerwall.fleet_token;

-- The longest time between two of its runs.
ALTER TABLE bannerwall.fleet_schedules ADD COLUMN IF NOT EXISTS longest bigint NOT NULL DEFAULT 31622400000;

-- Scans of a pool belong to the workers of that pool, and scans without one to all others.
ALTER TABLE bannerwall.fleet_schedules ADD COLUMN IF NOT EXISTS pool text;
ALTER TABLE bannerwall.fleet_scans ADD COLUMN IF NOT EXISTS pool text;

-- The last 100 scans of a pool stay.
CREATE OR REPLACE FUNCTION bannerwall.fleet_pool_kept() RETURNS trigger LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM bannerwall.fleet_scans WHERE pool = NEW.pool AND state <> 'open' AND id <=
    (SELECT id FROM bannerwall.fleet_scans WHERE pool = NEW.pool ORDER BY id DESC OFFSET 100 LIMIT 1);
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION bannerwall.fleet_pool_kept() FROM PUBLIC;
DROP TRIGGER IF EXISTS fleet_pool_kept ON bannerwall.fleet_scans;
CREATE TRIGGER fleet_pool_kept AFTER INSERT ON bannerwall.fleet_scans FOR EACH ROW WHEN (NEW.pool IS NOT NULL)
  EXECUTE FUNCTION bannerwall.fleet_pool_kept();

-- A worker moves a schedule that is due to a time that the schedule allows. It skips a run only if the run before is still
-- open, or if the run is more than 5 minutes late.
CREATE OR REPLACE FUNCTION bannerwall.fleet_begin(of_schedule bigint, next_due bigint, begins boolean, times_missed bigint,
  why text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  at bigint := bannerwall.fleet_now();
  was bannerwall.fleet_schedules;
  scan bigint;
BEGIN
  SELECT * INTO was FROM bannerwall.fleet_schedules WHERE id = of_schedule AND due <= at FOR UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  UPDATE bannerwall.fleet_schedules SET due = least(greatest(next_due, due + gap), at + longest),
    missed = missed + least(greatest(times_missed, 0), 10000),
    missed_at = CASE WHEN times_missed > 0 THEN at ELSE missed_at END, missed_why = coalesce(left(why, 200), missed_why)
    WHERE id = of_schedule;
  INSERT INTO bannerwall.fleet_scans (schedule, about, what, targets, shards, attempts, who, pool)
    SELECT was.id, was.about, was.what, was.targets, was.shards, was.attempts, was.who, was.pool
    WHERE (begins OR at - was.due <= 300000)
      AND NOT EXISTS (SELECT FROM bannerwall.fleet_scans WHERE schedule = of_schedule AND state = 'open')
    RETURNING id INTO scan;
  RETURN coalesce(scan, 0);
END $$;

UPDATE bannerwall.fleet_version SET version = 8;
