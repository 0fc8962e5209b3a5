-- Sensors: guards, replays and scans elsewhere that may enter batches, and read nothing.
CREATE TABLE bannerwall.fleet_sensors (
  sensor text PRIMARY KEY,                -- the role that it comes as
  made bigint NOT NULL DEFAULT bannerwall.fleet_now(),
  heard bigint,                           -- when the last batch came that was taken out of the inbox
  skew bigint,                            -- its clock less the server's by that batch, in milliseconds
  waiting bigint NOT NULL DEFAULT 0,      -- batches that it kept itself when it sent that one
  merged bigint,                          -- when something was last taken out of the inbox
  batches bigint NOT NULL DEFAULT 0,
  sightings bigint NOT NULL DEFAULT 0,
  lost bigint NOT NULL DEFAULT 0          -- sightings that its runs told to have lost
);

-- Runs of sensors, and how far each was merged: what comes once more is known.
CREATE TABLE bannerwall.fleet_streams (
  sensor text NOT NULL,
  stream text NOT NULL,
  number bigint NOT NULL,
  heard bigint NOT NULL,
  lost bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (sensor, stream)
);

-- Batches that were sent and not merged yet, and those that cannot be.
CREATE TABLE bannerwall.fleet_inbox (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  sensor text NOT NULL DEFAULT session_user,
  stream text NOT NULL CHECK (length(stream) BETWEEN 1 AND 64),
  number bigint NOT NULL CHECK (number > 0),
  sent_at bigint NOT NULL CHECK (sent_at BETWEEN 0 AND 253402300800000),     -- by the sensor's clock
  received_at bigint NOT NULL DEFAULT bannerwall.fleet_now(),
  waiting bigint NOT NULL CHECK (waiting BETWEEN 0 AND 1000000000000),
  lost bigint NOT NULL CHECK (lost BETWEEN 0 AND 1000000000000000),
  version bigint NOT NULL,
  batch text NOT NULL CHECK (octet_length(batch) <= 4194304),
  refused text,                           -- why it was set aside
  again boolean NOT NULL DEFAULT false,   -- it was, and is to be tried once more
  UNIQUE (sensor, stream, number)
);
CREATE INDEX fleet_inbox_waiting ON bannerwall.fleet_inbox (sensor, id) WHERE refused IS NULL;

-- Whoever may only enter rows enters them in its own name.
ALTER TABLE bannerwall.fleet_inbox ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON bannerwall.fleet_inbox FOR INSERT WITH CHECK (sensor = session_user);
CREATE POLICY reading ON bannerwall.fleet_inbox FOR SELECT USING (true);
CREATE POLICY merging ON bannerwall.fleet_inbox FOR UPDATE USING (true);
CREATE POLICY merged ON bannerwall.fleet_inbox FOR DELETE USING (true);

UPDATE bannerwall.fleet_version SET version = 2;
