-- Of those that write scans, and merge what sensors have sent: workers and admins.
GRANT USAGE ON SCHEMA bannerwall TO {group};
GRANT SELECT ON ALL TABLES IN SCHEMA bannerwall TO {group};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA bannerwall TO {group};
GRANT INSERT, UPDATE, DELETE ON bannerwall.sensors, bannerwall.runs, bannerwall.hosts, bannerwall.banners,
  bannerwall.services, bannerwall.sightings, bannerwall.findings, bannerwall.contacts,
  bannerwall.banner_peers, bannerwall.unanswered, bannerwall.changes, bannerwall.rules, bannerwall.schedules, bannerwall.orders TO {group};
GRANT INSERT, UPDATE, DELETE ON bannerwall.fleet_scans, bannerwall.fleet_shards, bannerwall.fleet_workers,
  bannerwall.fleet_limits, bannerwall.fleet_shares, bannerwall.fleet_results, bannerwall.fleet_sensors,
  bannerwall.fleet_streams TO {group};
GRANT UPDATE, DELETE ON bannerwall.fleet_inbox TO {group};
