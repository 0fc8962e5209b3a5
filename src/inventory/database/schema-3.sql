-- The certificate that a server showed last, by its fingerprint.
ALTER TABLE services ADD COLUMN certificate INTEGER REFERENCES banners;
-- Of service_gone: refused (it was asked and did not accept) or unseen (for longer than --gone-after).
ALTER TABLE changes ADD COLUMN why TEXT;
-- How many batches a run has written: what became of one whose answer was lost.
ALTER TABLE runs ADD COLUMN batches INTEGER NOT NULL DEFAULT 0;
-- What each rule tells of all services; written with the findings.
CREATE TABLE rules (
  rule TEXT PRIMARY KEY,
  title TEXT NOT NULL,
  severity TEXT NOT NULL,
  services INTEGER NOT NULL,              -- services and clients of which it tells now
  gone INTEGER NOT NULL,                  -- those of which it told before
  count INTEGER NOT NULL,
  blocked INTEGER NOT NULL,
  first_seen INTEGER NOT NULL,
  last_seen INTEGER NOT NULL
);
