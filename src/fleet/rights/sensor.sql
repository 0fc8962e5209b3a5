GRANT CONNECT ON DATABASE {database} TO {group};
GRANT USAGE ON SCHEMA bannerwall TO {group};
-- Not sensor and received_at: whose a batch is, and when it came, the server knows itself.
GRANT INSERT (stream, number, sent_at, waiting, lost, version, batch) ON bannerwall.fleet_inbox TO {group};
GRANT EXECUTE ON FUNCTION bannerwall.fleet_heard() TO {group};
-- Rules are read by whom they are for, who says in its own name what it has of them.
GRANT SELECT ON bannerwall.fleet_rules TO {group};
GRANT SELECT, INSERT (serial, refused, reason), UPDATE (serial, refused, reason) ON bannerwall.fleet_rules_taken
  TO {group};
DROP POLICY IF EXISTS own ON bannerwall.fleet_rules_taken;
CREATE POLICY own ON bannerwall.fleet_rules_taken TO {group}
  USING (sensor = session_user) WITH CHECK (sensor = session_user);
