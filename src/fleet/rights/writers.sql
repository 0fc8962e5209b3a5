-- Of those that write scans, and merge what sensors have sent: workers and admins.
GRANT CONNECT ON DATABASE {database} TO {group};
GRANT USAGE ON SCHEMA bannerwall TO {group};
GRANT SELECT ON ALL TABLES IN SCHEMA bannerwall TO {group};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA bannerwall TO {group};
GRANT INSERT, UPDATE, DELETE ON bannerwall.sensors, bannerwall.runs, bannerwall.hosts, bannerwall.banners,
  bannerwall.services, bannerwall.sightings, bannerwall.findings, bannerwall.contacts,
  bannerwall.banner_peers, bannerwall.unanswered, bannerwall.changes, bannerwall.rules TO {group};
GRANT UPDATE (state, ended) ON bannerwall.fleet_scans TO {group};
GRANT UPDATE ON bannerwall.fleet_shards TO {group};
GRANT INSERT ON bannerwall.fleet_results TO {group};
GRANT DELETE ON bannerwall.fleet_shares TO {group};
GRANT INSERT, UPDATE ON bannerwall.fleet_sensors TO {group};
GRANT INSERT, UPDATE, DELETE ON bannerwall.fleet_streams TO {group};
REVOKE INSERT, UPDATE ON bannerwall.fleet_workers FROM {group};
GRANT INSERT (name, seen, expires), DELETE ON bannerwall.fleet_workers TO {group};
GRANT EXECUTE ON FUNCTION bannerwall.fleet_begin(bigint, bigint, boolean, bigint, text), bannerwall.fleet_unblock(),
  bannerwall.fleet_share(bigint, bigint, bigint, bigint, bigint), bannerwall.fleet_beat(bigint, bigint) TO {group};
-- Whose a batch is, and of which run, stays as the server has noted it.
GRANT UPDATE (refused, again, batch), DELETE ON bannerwall.fleet_inbox TO {group};
-- A run holds such a lock as long as it is connected, by which others know that it goes on.
GRANT EXECUTE ON FUNCTION pg_try_advisory_lock(int, int), pg_try_advisory_xact_lock(int, int) TO {group};
