-- To whom a service or client said a banner, and in how many connections: what rules would stop is counted by it.
CREATE TABLE banner_peers (
  service INTEGER NOT NULL REFERENCES services ON DELETE CASCADE,
  banner INTEGER NOT NULL,
  rule TEXT NOT NULL,                     -- empty: said; else the rule that has told of it
  peer BLOB NOT NULL,                     -- the other end's address, as hosts.octets
  port INTEGER NOT NULL,                  -- of a server that a client came to; else 0
  sensor INTEGER NOT NULL,
  first_seen INTEGER NOT NULL,
  last_seen INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (service, banner, rule, peer, port, sensor)
) WITHOUT ROWID;
-- Clients that spoke a protocol to a server that did not answer in it: no service, but what a policy would stop.
CREATE TABLE unanswered (
  octets BLOB NOT NULL,                   -- the server's address, as hosts.octets
  address TEXT NOT NULL,
  port INTEGER NOT NULL,
  protocol TEXT NOT NULL,
  client BLOB NOT NULL,
  sensor INTEGER NOT NULL,
  first_seen INTEGER NOT NULL,
  last_seen INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (octets, port, protocol, client, sensor)
) WITHOUT ROWID;
