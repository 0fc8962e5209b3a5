GRANT INSERT, UPDATE, DELETE ON bannerwall.fleet_schedules TO bannerwall_admin;
-- What a sensor that is forgotten has said of itself.
GRANT DELETE ON bannerwall.fleet_heartbeats, bannerwall.fleet_rules_taken TO bannerwall_admin;
DROP POLICY IF EXISTS admins ON bannerwall.fleet_rules_taken;
CREATE POLICY admins ON bannerwall.fleet_rules_taken TO bannerwall_admin USING (true);
