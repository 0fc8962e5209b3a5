GRANT USAGE ON SCHEMA bannerwall TO bannerwall_admin;
GRANT SELECT ON ALL TABLES IN SCHEMA bannerwall TO bannerwall_admin;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA bannerwall TO bannerwall_admin;
GRANT INSERT, UPDATE, DELETE ON bannerwall.sensors, bannerwall.runs, bannerwall.hosts, bannerwall.banners,
  bannerwall.services, bannerwall.sightings, bannerwall.findings, bannerwall.contacts, bannerwall.changes,
  bannerwall.rules, bannerwall.schedules, bannerwall.orders TO bannerwall_admin;
GRANT INSERT, UPDATE, DELETE ON bannerwall.fleet_scans, bannerwall.fleet_shards, bannerwall.fleet_workers,
  bannerwall.fleet_limits, bannerwall.fleet_shares, bannerwall.fleet_results, bannerwall.fleet_sensors,
  bannerwall.fleet_streams TO bannerwall_admin;
GRANT UPDATE, DELETE ON bannerwall.fleet_inbox TO bannerwall_admin;
GRANT INSERT, UPDATE, DELETE ON bannerwall.fleet_schedules TO bannerwall_admin;
-- What a sensor that is forgotten has said of itself.
GRANT DELETE ON bannerwall.fleet_heartbeats, bannerwall.fleet_rules_taken TO bannerwall_admin;
DROP POLICY IF EXISTS admins ON bannerwall.fleet_rules_taken;
CREATE POLICY admins ON bannerwall.fleet_rules_taken TO bannerwall_admin USING (true);
