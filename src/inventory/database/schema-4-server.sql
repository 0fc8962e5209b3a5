-- Writers know of texts and sensors that they are there, since nobody else writes meanwhile; to have the server look each up
-- for each row takes most of the time that a batch takes.
ALTER TABLE services DROP CONSTRAINT services_banner_fkey, DROP CONSTRAINT services_hassh_fkey,
  DROP CONSTRAINT services_certificate_fkey;
ALTER TABLE sightings DROP CONSTRAINT sightings_banner_fkey, DROP CONSTRAINT sightings_sensor_fkey;
ALTER TABLE findings DROP CONSTRAINT findings_banner_fkey, DROP CONSTRAINT findings_sensor_fkey;
ALTER TABLE contacts DROP CONSTRAINT contacts_sensor_fkey;
ALTER TABLE changes DROP CONSTRAINT changes_old_fkey, DROP CONSTRAINT changes_new_fkey,
  DROP CONSTRAINT changes_sensor_fkey;
-- It looked up by these whether a text is still named.
DROP INDEX IF EXISTS services_hassh, services_certificate, sightings_banner, findings_banner, changes_old, changes_new;
