GRANT USAGE ON SCHEMA bannerwall TO bannerwall_sensor;
-- Not sensor and received_at: whose a batch is, and when it came, the server knows itself.
GRANT INSERT (stream, number, sent_at, waiting, lost, version, batch) ON bannerwall.fleet_inbox TO bannerwall_sensor;
GRANT EXECUTE ON FUNCTION bannerwall.fleet_heard() TO bannerwall_sensor;
-- Rules are read by whom they are for, who says in its own name what it has of them.
GRANT SELECT ON bannerwall.fleet_rules TO bannerwall_sensor;
GRANT SELECT, INSERT (serial, refused, reason), UPDATE (serial, refused, reason) ON bannerwall.fleet_rules_taken
  TO bannerwall_sensor;
DROP POLICY IF EXISTS own ON bannerwall.fleet_rules_taken;
CREATE POLICY own ON bannerwall.fleet_rules_taken TO bannerwall_sensor
  USING (sensor = session_user) WITH CHECK (sensor = session_user);
