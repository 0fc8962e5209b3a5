-- Everybody on the server may connect to a new database, make temporary tables there, and take advisory locks and large objects,
-- which no limit of a role bounds. From here on only its groups may connect. Functions of the system belong to superusers.
DO $bannerwall$
DECLARE
  maker name := (SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'bannerwall');
  shared text;
BEGIN
  EXECUTE format('GRANT CONNECT, TEMPORARY ON DATABASE %I TO %I', current_database(), maker);
  EXECUTE format('REVOKE CONNECT, TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
  FOR shared IN SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
    AND proname ~ '^(pg_.*advisory|lo_|loread$|lowrite$)' AND (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', shared, maker);
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', shared);
  END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
  RAISE WARNING 'only the owner of the database can keep others out: %', SQLERRM;
END $bannerwall$;
