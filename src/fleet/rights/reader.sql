GRANT USAGE ON SCHEMA bannerwall TO bannerwall_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA bannerwall TO bannerwall_reader;
DROP POLICY IF EXISTS readers ON bannerwall.fleet_rules_taken;
CREATE POLICY readers ON bannerwall.fleet_rules_taken FOR SELECT TO bannerwall_reader USING (true);
