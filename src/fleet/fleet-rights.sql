GRANT USAGE ON SCHEMA bannerwall
  TO bannerwall_sensor, bannerwall_worker, bannerwall_reader, bannerwall_admin, bannerwall_publisher;
-- Not sensor and received_at: whose a batch is, and when it came, the server knows itself.
GRANT INSERT (stream, number, sent_at, waiting, lost, version, batch) ON bannerwall.fleet_inbox TO bannerwall_sensor;
GRANT EXECUTE ON FUNCTION bannerwall.fleet_heard() TO bannerwall_sensor;
GRANT SELECT ON ALL TABLES IN SCHEMA bannerwall TO bannerwall_worker, bannerwall_reader, bannerwall_admin;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA bannerwall TO bannerwall_worker, bannerwall_admin;
GRANT INSERT, UPDATE, DELETE ON bannerwall.sensors, bannerwall.runs, bannerwall.hosts, bannerwall.banners,
  bannerwall.services, bannerwall.sightings, bannerwall.findings, bannerwall.contacts, bannerwall.changes,
  bannerwall.rules, bannerwall.schedules, bannerwall.orders TO bannerwall_worker, bannerwall_admin;
GRANT INSERT, UPDATE, DELETE ON bannerwall.fleet_scans, bannerwall.fleet_shards, bannerwall.fleet_workers,
  bannerwall.fleet_limits, bannerwall.fleet_shares, bannerwall.fleet_results, bannerwall.fleet_sensors,
  bannerwall.fleet_streams TO bannerwall_worker, bannerwall_admin;
GRANT UPDATE, DELETE ON bannerwall.fleet_inbox TO bannerwall_worker, bannerwall_admin;
GRANT UPDATE ON bannerwall.fleet_schedules TO bannerwall_worker;
GRANT INSERT, UPDATE, DELETE ON bannerwall.fleet_schedules TO bannerwall_admin;
-- Rules are read by whom they are for, and entered by publishers alone; a pack that is there nobody changes.
GRANT SELECT ON bannerwall.fleet_rules TO bannerwall_sensor;
GRANT SELECT, INSERT (serial, refused, reason), UPDATE (serial, refused, reason) ON bannerwall.fleet_rules_taken
  TO bannerwall_sensor;
GRANT SELECT ON bannerwall.fleet_version, bannerwall.fleet_sensors, bannerwall.fleet_rules, bannerwall.fleet_rules_taken
  TO bannerwall_publisher;
GRANT INSERT (serial, pack, signature, percent, rules, note), UPDATE (percent) ON bannerwall.fleet_rules
  TO bannerwall_publisher;
DROP POLICY IF EXISTS own ON bannerwall.fleet_rules_taken;
CREATE POLICY own ON bannerwall.fleet_rules_taken TO bannerwall_sensor
  USING (sensor = session_user) WITH CHECK (sensor = session_user);
DROP POLICY IF EXISTS reading ON bannerwall.fleet_rules_taken;
CREATE POLICY reading ON bannerwall.fleet_rules_taken FOR SELECT
  TO bannerwall_worker, bannerwall_reader, bannerwall_admin, bannerwall_publisher USING (true);
