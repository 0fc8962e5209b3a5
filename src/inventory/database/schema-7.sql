-- The key that an SSH server showed last, by its fingerprint and type.
ALTER TABLE services ADD COLUMN host_key INTEGER;
-- Who shows one is asked for, and most services show none.
CREATE INDEX services_host_key ON services (host_key) WHERE host_key IS NOT NULL;
