-- The key that an SSH server showed last, by its fingerprint and type.
ALTER TABLE services ADD COLUMN host_key INTEGER;
-- Who shows one is asked for, and most services show none.
CREATE INDEX services_host_key ON services (host_key) WHERE host_key IS NOT NULL;
-- Which versions there are, and who has one of them.
CREATE INDEX banners_version ON banners (version) WHERE version IS NOT NULL;
-- What the overview counts, without a look at the rows.
DROP INDEX changes_at;
CREATE INDEX changes_at ON changes (at, kind);
DROP INDEX findings_open;
CREATE INDEX findings_open ON findings (severity, service, state) WHERE state = 'open';
