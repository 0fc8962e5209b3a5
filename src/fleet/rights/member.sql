-- A role's own limits stay. It may change timeouts in its session, but not the other two.
DO $bannerwall$
DECLARE
  member record;
BEGIN
  SELECT oid, rolname, rolsuper, rolconnlimit INTO member FROM pg_roles WHERE rolname = {name};
  IF member.rolsuper THEN
    RETURN;
  END IF;
  IF member.rolconnlimit = -1 THEN
    EXECUTE format('ALTER ROLE %I CONNECTION LIMIT %s', member.rolname, {connections});
  END IF;
  IF EXISTS (SELECT FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
    WHERE s.setrole = member.oid AND d.datname = current_database()) THEN
    RETURN;
  END IF;
  EXECUTE format('ALTER ROLE %1$I IN DATABASE %2$I SET statement_timeout = ''75s'';
    ALTER ROLE %1$I IN DATABASE %2$I SET idle_in_transaction_session_timeout = ''5min''', member.rolname,
    current_database());
  BEGIN
    EXECUTE format('ALTER ROLE %I IN DATABASE %I SET temp_file_limit = %L', member.rolname, current_database(), '{temporary}');
  EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'role %: only a superuser bounds its temporary files', member.rolname;
  END;
END $bannerwall$;
