GRANT CONNECT ON DATABASE {database} TO {group};
GRANT USAGE ON SCHEMA bannerwall TO {group};
-- Rules are entered by publishers alone; a pack that is there nobody changes.
GRANT SELECT ON bannerwall.fleet_version, bannerwall.fleet_sensors, bannerwall.fleet_rules, bannerwall.fleet_rules_taken
  TO {group};
GRANT INSERT (serial, pack, signature, percent, rules, note), UPDATE (percent) ON bannerwall.fleet_rules
  TO {group};
DROP POLICY IF EXISTS publishers ON bannerwall.fleet_rules_taken;
CREATE POLICY publishers ON bannerwall.fleet_rules_taken FOR SELECT TO {group} USING (true);
