-- Rules from one place: packs of rule files, each signed, and which of them every sensor has in force.
CREATE TABLE bannerwall.fleet_rules (
  serial bigint PRIMARY KEY CHECK (serial > 0),  -- stands in the pack as well, which is signed
  pack bytea NOT NULL CHECK (octet_length(pack) <= 33554432),
  signature text NOT NULL CHECK (octet_length(signature) <= 4096),
  percent bigint NOT NULL CHECK (percent BETWEEN 0 AND 100),    -- of the sensors that it is meant for
  rules bigint NOT NULL,                  -- how many stand in it, for a person, and so is the note
  note text NOT NULL CHECK (octet_length(note) <= 4096),
  who text NOT NULL DEFAULT session_user,
  made bigint NOT NULL DEFAULT bannerwall.fleet_now()
);

-- What a sensor says of them, in its own name; times are the server's.
CREATE TABLE bannerwall.fleet_rules_taken (
  sensor text PRIMARY KEY DEFAULT session_user,
  serial bigint,                          -- the version in force
  since bigint,
  refused bigint,                         -- the newest one that it did not take
  reason text CHECK (octet_length(reason) <= 8192),
  refused_at bigint,
  seen bigint NOT NULL DEFAULT bannerwall.fleet_now()
);

CREATE FUNCTION bannerwall.fleet_rules_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.seen := bannerwall.fleet_now();
  IF TG_OP = 'INSERT' OR NEW.serial IS DISTINCT FROM OLD.serial THEN
    NEW.since := CASE WHEN NEW.serial IS NOT NULL THEN NEW.seen END;
  END IF;
  IF TG_OP = 'INSERT' OR NEW.refused IS DISTINCT FROM OLD.refused OR NEW.reason IS DISTINCT FROM OLD.reason THEN
    NEW.refused_at := CASE WHEN NEW.refused IS NOT NULL THEN NEW.seen END;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER fleet_rules_told BEFORE INSERT OR UPDATE ON bannerwall.fleet_rules_taken
  FOR EACH ROW EXECUTE FUNCTION bannerwall.fleet_rules_told();

-- Whom rows are shown to is said where the roles are.
ALTER TABLE bannerwall.fleet_rules_taken ENABLE ROW LEVEL SECURITY;

UPDATE bannerwall.fleet_version SET version = 4;
