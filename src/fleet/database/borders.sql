-- What is so of a fleet's roles and tables, a fact a row. ?1 are labels of roles, ?2 their names: a group is called by its word.
-- What PUBLIC may do is so of PUBLIC alone.
WITH roles AS (
  SELECT given.label, r.oid, r.rolname, r.rolsuper, r.rolcanlogin, r.rolconnlimit, r.rolcreatedb, r.rolcreaterole,
    r.rolreplication, r.rolbypassrls
  FROM unnest(?1::text[], ?2::text[]) AS given (label, name) JOIN pg_roles r ON r.rolname = given.name
), here AS (
  SELECT oid, datname FROM pg_database WHERE datname = current_database()
), relations AS (
  SELECT c.oid, c.relkind, n.nspname ~ '^(pg_|information_schema$)' AS is_system,
    format('%I.%I', n.nspname, coalesce(root.relname, c.relname)) AS name
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_class root ON root.oid = pg_partition_root(c.oid)
  WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND c.relpersistence <> 't' AND n.nspname <> 'pg_toast'
), functions AS (
  SELECT p.oid, p.prosecdef, p.proname, p.pronamespace, n.nspname ~ '^(pg_|information_schema$)' AS is_system,
    format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)) AS name,
    has_function_privilege('public', p.oid, 'EXECUTE') AS is_public
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
), rights AS (
  -- 0 is PUBLIC.
  SELECT label, oid FROM roles WHERE NOT rolsuper UNION ALL SELECT 'PUBLIC', 0
), held (label, role, is_public, fact) AS (
  SELECT label, rights.oid, has_table_privilege('public', r.oid, may), 'may ' || may || ' table ' || r.name
  FROM rights, relations r, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) may
  WHERE r.relkind <> 'S' AND (rights.oid > 0 OR NOT r.is_system) AND CASE WHEN rights.oid > 0
    THEN has_table_privilege(rights.oid, r.oid, may) ELSE has_table_privilege('public', r.oid, may) END
  UNION ALL
  SELECT label, rights.oid, has_column_privilege('public', r.oid, a.attnum, may),
    format('may %s column %I of table %s', may, a.attname, r.name)
  FROM rights, relations r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attacl IS NOT NULL AND NOT a.attisdropped,
    unnest('{SELECT,INSERT,UPDATE,REFERENCES}'::text[]) may
  WHERE (rights.oid > 0 OR NOT r.is_system) AND CASE WHEN rights.oid > 0
    THEN has_column_privilege(rights.oid, r.oid, a.attnum, may) ELSE has_column_privilege('public', r.oid, a.attnum, may) END
  UNION ALL
  SELECT label, rights.oid, has_sequence_privilege('public', r.oid, may), 'may ' || may || ' sequence ' || r.name
  FROM rights, (SELECT * FROM relations WHERE relkind = 'S' OFFSET 0) r, unnest('{SELECT,UPDATE,USAGE}'::text[]) may
  WHERE CASE WHEN rights.oid > 0
    THEN has_sequence_privilege(rights.oid, r.oid, may) ELSE has_sequence_privilege('public', r.oid, may) END
  UNION ALL
  -- PUBLIC may call what does no more than its caller, but for locks and large objects that no limit of a role bounds.
  SELECT label, rights.oid, f.is_public, 'may EXECUTE function ' || f.name FROM rights, functions f
  WHERE CASE WHEN rights.oid > 0 THEN NOT f.is_public AND has_function_privilege(rights.oid, f.oid, 'EXECUTE')
    ELSE f.is_public AND (f.prosecdef AND NOT f.is_system OR f.pronamespace = 'pg_catalog'::regnamespace
      AND f.proname ~ '^(pg_.*advisory|lo_|loread$|lowrite$)') END
  UNION ALL
  SELECT label, rights.oid, has_schema_privilege('public', n.oid, may), format('may have %s of schema %I', may, n.nspname)
  FROM rights, pg_namespace n, unnest('{USAGE,CREATE}'::text[]) may
  WHERE n.nspname !~ '^(pg_|information_schema$)' AND CASE WHEN rights.oid > 0 THEN has_schema_privilege(rights.oid, n.oid, may)
    ELSE has_schema_privilege('public', n.oid, may) AND (may = 'CREATE' OR n.nspname = 'bannerwall') END
  UNION ALL
  SELECT label, rights.oid, has_database_privilege('public', d.oid, may), format('may %s database %I', may, d.datname)
  FROM rights, pg_database d, unnest('{CONNECT,CREATE,TEMPORARY}'::text[]) may
  WHERE CASE WHEN rights.oid > 0 THEN has_database_privilege(rights.oid, d.oid, may)
    ELSE has_database_privilege('public', d.oid, may) AND d.datname = current_database() END
)
SELECT label, fact FROM held WHERE role = 0 OR NOT is_public
UNION SELECT 'PUBLIC', 'is granted rights to what is made later, by ALTER DEFAULT PRIVILEGES'
FROM pg_default_acl, aclexplode(defaclacl) acl WHERE acl.grantee = 0
UNION SELECT label, 'has the attribute ' || attribute FROM roles, LATERAL (VALUES ('SUPERUSER', rolsuper),
  ('CREATEDB', rolcreatedb), ('CREATEROLE', rolcreaterole), ('REPLICATION', rolreplication), ('BYPASSRLS', rolbypassrls),
  ('LOGIN', rolcanlogin AND label <> rolname)) attributes (attribute, has) WHERE has
UNION SELECT label, 'is a member of ' || r.rolname FROM roles, pg_roles r
WHERE NOT roles.rolsuper AND r.oid <> roles.oid AND pg_has_role(roles.oid, r.oid, 'MEMBER')
UNION SELECT label, 'may let others into ' || m.roleid::regrole FROM roles JOIN pg_auth_members m ON m.member = roles.oid
WHERE m.admin_option
UNION SELECT label, 'has no CONNECTION LIMIT' FROM roles WHERE rolcanlogin AND rolconnlimit = -1
UNION SELECT label, 'has no ' || setting FROM roles, here,
  unnest('{statement_timeout,idle_in_transaction_session_timeout,temp_file_limit}'::text[]) setting
WHERE rolcanlogin AND NOT EXISTS (SELECT FROM pg_db_role_setting s, unnest(s.setconfig) config WHERE s.setrole = roles.oid
  AND s.setdatabase IN (0, here.oid) AND config LIKE setting || '=%' AND config !~ '=(0|-1)\D*$')
UNION SELECT label, CASE deptype WHEN 'o' THEN 'owns ' ELSE 'is granted rights to ' END
  || pg_describe_object(classid, objid, objsubid)
FROM roles JOIN pg_shdepend d ON d.refclassid = 'pg_authid'::regclass AND d.refobjid = roles.oid, here
WHERE d.dbid IN (0, here.oid) AND (d.deptype = 'o' OR d.deptype = 'a' AND d.classid NOT IN ('pg_class'::regclass,
  'pg_proc'::regclass, 'pg_namespace'::regclass, 'pg_database'::regclass))
UNION SELECT 'owner', format('role %I can end no session that keeps others waiting: GRANT pg_signal_backend, pg_read_all_stats TO %1$I',
  o.rolname)
FROM pg_namespace n JOIN pg_roles o ON o.oid = n.nspowner WHERE n.nspname = 'bannerwall' AND NOT o.rolsuper
  AND NOT (pg_has_role(o.oid, 'pg_signal_backend', 'USAGE') AND pg_has_role(o.oid, 'pg_read_all_stats', 'USAGE'))
UNION SELECT 'tables', 'row security of ' || c.relname FROM pg_class c
WHERE c.relnamespace = 'bannerwall'::regnamespace AND c.relrowsecurity
UNION SELECT 'tables', format('policy %s of %s, for %s %s to %s, using (%s), with check (%s)', p.polname, c.relname, p.polcmd,
  p.polpermissive, (SELECT string_agg(coalesce(roles.label, r.rolname, 'PUBLIC'), ', ') FROM unnest(p.polroles) id
    LEFT JOIN pg_roles r ON r.oid = id LEFT JOIN roles ON roles.oid = id),
  regexp_replace(pg_get_expr(p.polqual, p.polrelid), '\s+', ' ', 'g'),
  regexp_replace(pg_get_expr(p.polwithcheck, p.polrelid), '\s+', ' ', 'g'))
FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid WHERE c.relnamespace = 'bannerwall'::regnamespace
UNION SELECT 'tables', format('%s, state %s', pg_get_triggerdef(t.oid), t.tgenabled)
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = 'bannerwall'::regnamespace AND NOT t.tgisinternal
UNION SELECT 'tables', format('function %s, by the rights of its %s, %s, of text %s', f.name,
  CASE WHEN p.prosecdef THEN 'owner' ELSE 'caller' END, coalesce(p.proconfig::text, 'without settings'), md5(p.prosrc))
FROM functions f JOIN pg_proc p USING (oid) WHERE f.pronamespace = 'bannerwall'::regnamespace
