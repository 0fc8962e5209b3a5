-- Groups belong to a database: those of before were the whole server's, and may do nothing here any more.
DO $$
DECLARE
  before name;
BEGIN
  FOR before IN SELECT rolname FROM pg_roles WHERE rolname IN ('bannerwall_sensor', 'bannerwall_worker', 'bannerwall_reader',
    'bannerwall_admin', 'bannerwall_publisher')
  LOOP
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA bannerwall FROM %1$I;
      REVOKE ALL ON ALL SEQUENCES IN SCHEMA bannerwall FROM %1$I;
      REVOKE ALL ON ALL FUNCTIONS IN SCHEMA bannerwall FROM %1$I;
      REVOKE ALL ON SCHEMA bannerwall FROM %1$I', before);
  END LOOP;
END $$;

-- Each publisher has numbers of its own, and changes its own versions. One without the key can neither take numbers away nor
-- have them run out: that takes 90,000,000,000 versions.
ALTER TABLE bannerwall.fleet_rules DROP CONSTRAINT fleet_rules_pkey, ADD PRIMARY KEY (serial, who);
ALTER TABLE bannerwall.fleet_rules ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS reading ON bannerwall.fleet_rules;
DROP POLICY IF EXISTS entering ON bannerwall.fleet_rules;
DROP POLICY IF EXISTS own ON bannerwall.fleet_rules;
CREATE POLICY reading ON bannerwall.fleet_rules FOR SELECT USING (true);
CREATE POLICY entering ON bannerwall.fleet_rules FOR INSERT WITH CHECK (who = session_user);
CREATE POLICY own ON bannerwall.fleet_rules FOR UPDATE USING (who = session_user);
CREATE OR REPLACE FUNCTION bannerwall.fleet_rules_numbered() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.serial > (SELECT coalesce(max(serial), 0) + 100000000 FROM bannerwall.fleet_rules) THEN
    RAISE EXCEPTION 'version % is more than 100000000 above the newest one', NEW.serial USING ERRCODE = 'check_violation';
  END IF;
  RETURN NEW;
END $$;
DROP TRIGGER IF EXISTS fleet_rules_numbered ON bannerwall.fleet_rules;
CREATE TRIGGER fleet_rules_numbered BEFORE INSERT ON bannerwall.fleet_rules
  FOR EACH ROW EXECUTE FUNCTION bannerwall.fleet_rules_numbered();

-- The newest 32 versions of each publisher stay, and its older ones go as it enters more.
CREATE OR REPLACE FUNCTION bannerwall.fleet_rules_kept() RETURNS trigger LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM bannerwall.fleet_rules WHERE who = NEW.who AND serial <=
    (SELECT serial FROM bannerwall.fleet_rules WHERE who = NEW.who ORDER BY serial DESC OFFSET 32 LIMIT 1);
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION bannerwall.fleet_rules_kept() FROM PUBLIC;
DROP TRIGGER IF EXISTS fleet_rules_kept ON bannerwall.fleet_rules;
CREATE TRIGGER fleet_rules_kept AFTER INSERT ON bannerwall.fleet_rules
  FOR EACH ROW EXECUTE FUNCTION bannerwall.fleet_rules_kept();

-- A scan is cut into shards, and has its limits, by the server: no role writes either.
CREATE OR REPLACE FUNCTION bannerwall.fleet_cut() RETURNS trigger LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- Of shard n of N the targets are n, n + N, n + 2 N …
  INSERT INTO bannerwall.fleet_shards (scan, number, total)
    SELECT NEW.id, number, (NEW.targets - number + NEW.shards - 1) / NEW.shards FROM generate_series(0, NEW.shards - 1) number;
  INSERT INTO bannerwall.fleet_limits (scan, number, network, rate)
    SELECT NEW.id, number, network, rate * 1000 FROM (
      SELECT 0 AS number, NULL AS network, (NEW.what::json ->> 'rate')::bigint AS rate
      UNION ALL SELECT number, row ->> 'network', (row ->> 'rate')::bigint
        FROM json_array_elements(NEW.what::json -> 'order' -> 'limits') WITH ORDINALITY AS limits (row, number)
    ) limits WHERE rate IS NOT NULL;
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION bannerwall.fleet_cut() FROM PUBLIC;
DROP TRIGGER IF EXISTS fleet_cut ON bannerwall.fleet_scans;
CREATE TRIGGER fleet_cut AFTER INSERT ON bannerwall.fleet_scans FOR EACH ROW EXECUTE FUNCTION bannerwall.fleet_cut();
ALTER FUNCTION bannerwall.fleet_share(bigint, bigint, bigint, bigint, bigint) SECURITY DEFINER;
ALTER FUNCTION bannerwall.fleet_share(bigint, bigint, bigint, bigint, bigint) SET search_path = pg_catalog, pg_temp;
REVOKE ALL ON FUNCTION bannerwall.fleet_share(bigint, bigint, bigint, bigint, bigint) FROM PUBLIC;

-- A worker ends a scan that is done. Only who may enter scans cancels one, or opens it again.
CREATE OR REPLACE FUNCTION bannerwall.fleet_scan_ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT has_table_privilege('bannerwall.fleet_scans', 'INSERT') AND (OLD.state <> 'open' OR NEW.state <> 'done'
    OR EXISTS (SELECT FROM bannerwall.fleet_shards WHERE scan = OLD.id AND state IN ('ready', 'leased')))
  THEN
    RAISE EXCEPTION 'permission denied: a worker only ends scans whose shards are over' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NEW;
END $$;
DROP TRIGGER IF EXISTS fleet_scan_ends ON bannerwall.fleet_scans;
CREATE TRIGGER fleet_scan_ends BEFORE UPDATE ON bannerwall.fleet_scans
  FOR EACH ROW EXECUTE FUNCTION bannerwall.fleet_scan_ends();

-- The shortest time between two of its runs.
ALTER TABLE bannerwall.fleet_schedules ADD COLUMN IF NOT EXISTS gap bigint NOT NULL DEFAULT 60000;

-- A worker moves a schedule on that is due, by no less than its gap, and has the scan entered that an admin has ordered: its
-- number, 0 where none begins, none where the schedule is not due any more.
CREATE OR REPLACE FUNCTION bannerwall.fleet_begin(of_schedule bigint, next_due bigint, begins boolean, times_missed bigint,
  why text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  moved bannerwall.fleet_schedules;
  scan bigint;
BEGIN
  UPDATE bannerwall.fleet_schedules SET due = greatest(next_due, due + gap), missed = missed + least(greatest(times_missed, 0), 10000),
    missed_at = CASE WHEN times_missed > 0 THEN bannerwall.fleet_now() ELSE missed_at END,
    missed_why = coalesce(left(why, 200), missed_why)
    WHERE id = of_schedule AND due <= bannerwall.fleet_now() RETURNING * INTO moved;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  INSERT INTO bannerwall.fleet_scans (schedule, about, what, targets, shards, attempts, who)
    SELECT moved.id, moved.about, moved.what, moved.targets, moved.shards, moved.attempts, moved.who
    WHERE begins AND NOT EXISTS (SELECT FROM bannerwall.fleet_scans WHERE schedule = of_schedule AND state = 'open')
    RETURNING id INTO scan;
  RETURN coalesce(scan, 0);
END $$;
REVOKE ALL ON FUNCTION bannerwall.fleet_begin(bigint, bigint, boolean, bigint, text) FROM PUBLIC;

-- Any role may lift its own timeouts. Those that merge end sessions of the fleet's roles that have kept others waiting by a
-- transaction of more than 5 minutes, and say whose they were.
CREATE OR REPLACE FUNCTION bannerwall.fleet_unblock() RETURNS SETOF text LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  blocker record;
BEGIN
  FOR blocker IN SELECT DISTINCT b.pid, b.usename FROM pg_stat_activity w, unnest(pg_blocking_pids(w.pid)) pid
    JOIN pg_stat_activity b USING (pid) JOIN pg_roles r ON r.oid = b.usesysid AND NOT r.rolsuper
    JOIN pg_auth_members m ON m.member = r.oid JOIN pg_roles g ON g.oid = m.roleid AND g.rolname LIKE 'bannerwall\_%'
    WHERE w.datname = current_database() AND w.wait_event_type = 'Lock' AND b.datname = w.datname
      AND b.xact_start < clock_timestamp() - interval '5 min'
  LOOP
    IF pg_terminate_backend(blocker.pid) THEN
      RETURN NEXT blocker.usename;
    END IF;
  END LOOP;
END $$;
REVOKE ALL ON FUNCTION bannerwall.fleet_unblock() FROM PUBLIC;

UPDATE bannerwall.fleet_version SET version = 7;
