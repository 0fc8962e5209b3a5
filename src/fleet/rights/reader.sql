GRANT CONNECT ON DATABASE {database} TO {group};
GRANT USAGE ON SCHEMA bannerwall TO {group};
GRANT SELECT ON ALL TABLES IN SCHEMA bannerwall TO {group};
DROP POLICY IF EXISTS readers ON bannerwall.fleet_rules_taken;
CREATE POLICY readers ON bannerwall.fleet_rules_taken FOR SELECT TO {group} USING (true);
