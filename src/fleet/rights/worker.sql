DROP POLICY IF EXISTS workers ON bannerwall.fleet_rules_taken;
CREATE POLICY workers ON bannerwall.fleet_rules_taken FOR SELECT TO {group} USING (true);
