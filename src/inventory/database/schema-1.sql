-- Times are milliseconds since the Unix epoch: datetime(last_seen / 1000, 'unixepoch').

-- Where and by whom things are seen.
CREATE TABLE sensors (
  id INTEGER PRIMARY KEY,
  source TEXT NOT NULL,                   -- guard, scan, replay
  name TEXT NOT NULL,
  UNIQUE (source, name)
);

-- Each run of a sensor.
CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  sensor INTEGER NOT NULL REFERENCES sensors,
  about TEXT NOT NULL,                    -- what was scanned or read
  pid INTEGER NOT NULL,
  started INTEGER NOT NULL,
  ended INTEGER,
  state TEXT NOT NULL DEFAULT 'running',  -- running, done, killed
  lost INTEGER NOT NULL DEFAULT 0         -- what was seen and could not be kept
);

CREATE TABLE hosts (
  id INTEGER PRIMARY KEY,
  octets BLOB NOT NULL UNIQUE,            -- 4 of IPv4, 16 of IPv6, network byte order
  address TEXT NOT NULL,
  first_seen INTEGER NOT NULL
);

-- Everything that was ever said that names software, each text once.
CREATE TABLE banners (
  id INTEGER PRIMARY KEY,
  protocol TEXT NOT NULL,
  side TEXT NOT NULL,                     -- server, client
  kind TEXT NOT NULL,                     -- banner, hassh
  text TEXT NOT NULL,                     -- empty: nothing was said that names software
  vendor TEXT,
  product TEXT,
  version TEXT,
  cpe TEXT,
  os TEXT,
  patch TEXT,                             -- the package's revision: Debian-2+deb12u3
  UNIQUE (protocol, side, kind, text)
);

-- Servers at their ports, and clients (port 0).
CREATE TABLE services (
  id INTEGER PRIMARY KEY,
  host INTEGER NOT NULL REFERENCES hosts ON DELETE CASCADE,
  side TEXT NOT NULL,                     -- server, client
  port INTEGER NOT NULL,
  transport TEXT NOT NULL DEFAULT 'tcp',
  protocol TEXT NOT NULL,
  banner INTEGER NOT NULL REFERENCES banners,
  hassh INTEGER REFERENCES banners,
  state TEXT NOT NULL DEFAULT 'open',     -- open, gone: asked and did not accept
  first_seen INTEGER NOT NULL,
  last_seen INTEGER NOT NULL,
  banners INTEGER NOT NULL DEFAULT 1,     -- how many different ones are kept
  left_out INTEGER NOT NULL DEFAULT 0,    -- sightings of banners that were too many to be kept
  UNIQUE (host, side, port, protocol)
);
CREATE INDEX services_banner ON services (banner);

-- Who saw which banner of a service, since when, and how often.
CREATE TABLE sightings (
  service INTEGER NOT NULL REFERENCES services ON DELETE CASCADE,
  banner INTEGER NOT NULL REFERENCES banners,
  sensor INTEGER NOT NULL REFERENCES sensors,
  first_seen INTEGER NOT NULL,
  last_seen INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (service, banner, sensor)
) WITHOUT ROWID;

-- What rules and policies said of a banner.
CREATE TABLE findings (
  service INTEGER NOT NULL REFERENCES services ON DELETE CASCADE,
  rule TEXT NOT NULL,
  banner INTEGER NOT NULL REFERENCES banners,
  sensor INTEGER NOT NULL REFERENCES sensors,
  title TEXT NOT NULL,
  severity TEXT NOT NULL,                 -- info, low, medium, high, critical
  action TEXT NOT NULL,
  verdict TEXT,                           -- of an advisory: affected, fixed, unknown
  state TEXT NOT NULL DEFAULT 'open',     -- open, gone: the service says something else now
  first_seen INTEGER NOT NULL,
  last_seen INTEGER NOT NULL,
  count INTEGER NOT NULL,
  blocked INTEGER NOT NULL,               -- how often the connection was stopped
  PRIMARY KEY (service, rule, banner, sensor)
) WITHOUT ROWID;

-- Which clients came to a service.
CREATE TABLE contacts (
  service INTEGER NOT NULL REFERENCES services ON DELETE CASCADE,
  client INTEGER NOT NULL REFERENCES hosts ON DELETE CASCADE,
  sensor INTEGER NOT NULL REFERENCES sensors,
  first_seen INTEGER NOT NULL,
  last_seen INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (service, client, sensor)
) WITHOUT ROWID;
CREATE INDEX contacts_client ON contacts (client);

-- new_host, new_service, new_client, banner_changed, hassh_changed, finding_new, finding_gone,
-- service_gone, service_back.
CREATE TABLE changes (
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  service INTEGER NOT NULL REFERENCES services ON DELETE CASCADE,
  old INTEGER REFERENCES banners,
  new INTEGER REFERENCES banners,
  rule TEXT,
  sensor INTEGER NOT NULL REFERENCES sensors
);
CREATE INDEX changes_at ON changes (at);
CREATE INDEX changes_service ON changes (service);

-- The services as one would list them.
CREATE VIEW service_list AS
SELECT services.id, address, port, transport, services.protocol, services.side, state, text AS banner, vendor,
       product, version, patch, cpe, os,
       datetime(services.first_seen / 1000, 'unixepoch') AS first_seen,
       datetime(services.last_seen / 1000, 'unixepoch') AS last_seen
FROM services JOIN hosts ON hosts.id = services.host JOIN banners ON banners.id = services.banner;
