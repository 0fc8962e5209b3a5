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

-- A worker, which may write shards, begins what an admin has ordered and is due, and enters no scan of its own.
CREATE OR REPLACE FUNCTION bannerwall.fleet_begin(of_schedule bigint) RETURNS bigint LANGUAGE sql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO bannerwall.fleet_scans (schedule, about, what, targets, shards, attempts, who)
    SELECT id, about, what, targets, shards, attempts, who FROM bannerwall.fleet_schedules
    WHERE id = of_schedule AND due <= bannerwall.fleet_now()
      AND has_table_privilege(session_user, 'bannerwall.fleet_shards', 'INSERT')
  RETURNING id
$$;

UPDATE bannerwall.fleet_version SET version = 7;
