-- What runs with its owner's rights does so for the table that it was made for: whoever may name it could make a trigger of it on
-- a table of their own, whose rows would have it do whatever they say.
REVOKE ALL ON FUNCTION bannerwall.fleet_make_results() FROM PUBLIC;
REVOKE ALL ON FUNCTION bannerwall.fleet_drop_results() FROM PUBLIC;

-- Each group has a policy of its own by now, so that one that is not there keeps nothing from the others.
DROP POLICY IF EXISTS reading ON bannerwall.fleet_rules_taken;

UPDATE bannerwall.fleet_version SET version = 6;
