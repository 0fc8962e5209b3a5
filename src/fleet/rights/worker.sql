GRANT USAGE ON SCHEMA bannerwall TO bannerwall_worker;
GRANT SELECT ON ALL TABLES IN SCHEMA bannerwall TO bannerwall_worker;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA bannerwall TO bannerwall_worker;
GRANT INSERT, UPDATE, DELETE ON bannerwall.sensors, bannerwall.runs, bannerwall.hosts, bannerwall.banners,
  bannerwall.services, bannerwall.sightings, bannerwall.findings, bannerwall.contacts, bannerwall.changes,
  bannerwall.rules, bannerwall.schedules, bannerwall.orders TO bannerwall_worker;
GRANT INSERT, UPDATE, DELETE ON bannerwall.fleet_scans, bannerwall.fleet_shards, bannerwall.fleet_workers,
  bannerwall.fleet_limits, bannerwall.fleet_shares, bannerwall.fleet_results, bannerwall.fleet_sensors,
  bannerwall.fleet_streams TO bannerwall_worker;
GRANT UPDATE, DELETE ON bannerwall.fleet_inbox TO bannerwall_worker;
GRANT UPDATE ON bannerwall.fleet_schedules TO bannerwall_worker;
DROP POLICY IF EXISTS workers ON bannerwall.fleet_rules_taken;
CREATE POLICY workers ON bannerwall.fleet_rules_taken FOR SELECT TO bannerwall_worker USING (true);
