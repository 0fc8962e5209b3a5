-- What came of a scan lies in a table of its own, which goes at once when the scan is forgotten.
ALTER TABLE bannerwall.fleet_results RENAME TO fleet_results_before;
CREATE TABLE bannerwall.fleet_results (LIKE bannerwall.fleet_results_before INCLUDING ALL) PARTITION BY LIST (scan);

-- Whoever may enter a scan need not be able to make tables, and whoever may forget it none to drop them.
CREATE FUNCTION bannerwall.fleet_make_results() RETURNS trigger LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  EXECUTE format('CREATE TABLE bannerwall.%I (LIKE bannerwall.fleet_results INCLUDING ALL)', 'fleet_results_' || NEW.id);
  -- Unlike PARTITION OF, this waits for nobody who enters results of other scans.
  EXECUTE format('ALTER TABLE bannerwall.fleet_results ATTACH PARTITION bannerwall.%I FOR VALUES IN (%s)',
    'fleet_results_' || NEW.id, NEW.id);
  RETURN NULL;
END $$;

CREATE FUNCTION bannerwall.fleet_drop_results() RETURNS trigger LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF to_regclass('bannerwall.fleet_results_' || OLD.id) IS NULL THEN
    -- From the time when all lay in one.
    DELETE FROM bannerwall.fleet_results WHERE scan = OLD.id;
  ELSE
    EXECUTE format('DROP TABLE bannerwall.%I', 'fleet_results_' || OLD.id);
  END IF;
  RETURN NULL;
END $$;

-- Those that are there already: of scans with results, in one table; of others, in one each.
DO $$
DECLARE
  scans text := (SELECT string_agg(DISTINCT scan::text, ', ') FROM bannerwall.fleet_results_before);
BEGIN
  IF scans IS NULL THEN
    DROP TABLE bannerwall.fleet_results_before;
  ELSE
    EXECUTE format('ALTER TABLE bannerwall.fleet_results ATTACH PARTITION bannerwall.fleet_results_before
      FOR VALUES IN (%s)', scans);
  END IF;
END $$;
CREATE TRIGGER fleet_make_results AFTER INSERT ON bannerwall.fleet_scans
  FOR EACH ROW EXECUTE FUNCTION bannerwall.fleet_make_results();
DO $$
DECLARE
  scan bigint;
BEGIN
  FOR scan IN SELECT id FROM bannerwall.fleet_scans f
    WHERE NOT EXISTS (SELECT FROM bannerwall.fleet_results r WHERE r.scan = f.id)
  LOOP
    EXECUTE format('CREATE TABLE bannerwall.%I PARTITION OF bannerwall.fleet_results FOR VALUES IN (%s)',
      'fleet_results_' || scan, scan);
  END LOOP;
END $$;
CREATE TRIGGER fleet_drop_results AFTER DELETE ON bannerwall.fleet_scans
  FOR EACH ROW EXECUTE FUNCTION bannerwall.fleet_drop_results();

UPDATE bannerwall.fleet_version SET version = 3;
