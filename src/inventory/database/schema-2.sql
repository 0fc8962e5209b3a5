-- What the overview and listings by address ask of a million services.
CREATE INDEX services_state ON services (side, state);
CREATE INDEX findings_open ON findings (severity, service) WHERE state = 'open';
