-- That a sensor is there which sees nothing: it says so by a function, and may still neither read nor write a table.
CREATE TABLE bannerwall.fleet_heartbeats (
  sensor text PRIMARY KEY,
  at bigint NOT NULL
);
CREATE FUNCTION bannerwall.fleet_heard() RETURNS void LANGUAGE sql
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO bannerwall.fleet_heartbeats (sensor, at) VALUES (session_user, bannerwall.fleet_now())
    ON CONFLICT (sensor) DO UPDATE SET at = excluded.at
$$;
REVOKE ALL ON FUNCTION bannerwall.fleet_heard() FROM PUBLIC;

UPDATE bannerwall.fleet_version SET version = 5;
