-- Orders are given by admins alone, from the page as well.
GRANT INSERT, UPDATE, DELETE ON bannerwall.fleet_scans, bannerwall.fleet_schedules TO {group};
-- What a sensor that is forgotten has said of itself.
GRANT DELETE ON bannerwall.fleet_sensors, bannerwall.fleet_heartbeats, bannerwall.fleet_rules_taken TO {group};
DROP POLICY IF EXISTS admins ON bannerwall.fleet_rules_taken;
CREATE POLICY admins ON bannerwall.fleet_rules_taken TO {group} USING (true);
