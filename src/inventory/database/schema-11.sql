-- What the page asks for: the newest hosts, those affected by a rule, and what rules found lately.
CREATE INDEX hosts_first_seen ON hosts (first_seen);
CREATE INDEX findings_rule ON findings (rule, service, state) WHERE state = 'open';
CREATE INDEX changes_rule ON changes (at, kind, rule) WHERE rule IS NOT NULL;
