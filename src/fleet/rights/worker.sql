GRANT UPDATE ON bannerwall.fleet_schedules TO bannerwall_worker;
DROP POLICY IF EXISTS workers ON bannerwall.fleet_rules_taken;
CREATE POLICY workers ON bannerwall.fleet_rules_taken FOR SELECT TO bannerwall_worker USING (true);
