-- Scans that are started from the page again and again.
CREATE TABLE schedules (
  id INTEGER PRIMARY KEY,
  about TEXT NOT NULL,                    -- what is scanned, as JSON
  rhythm TEXT NOT NULL,                   -- every 6h, daily 03:30
  who TEXT NOT NULL,                      -- who made it
  made INTEGER NOT NULL,
  due INTEGER NOT NULL,                   -- when it is started next
  missed INTEGER NOT NULL DEFAULT 0,      -- how often it was due and not started
  missed_at INTEGER                       -- when that was noticed last
);

-- What was started from the page, by whom, and how it ended.
CREATE TABLE orders (
  id INTEGER PRIMARY KEY,
  schedule INTEGER,                       -- that it is of; none where somebody has started it
  about TEXT NOT NULL,
  who TEXT NOT NULL,
  page TEXT NOT NULL,                     -- machine and address of the page
  started INTEGER NOT NULL,
  ended INTEGER,
  code INTEGER,                           -- its exit status; none where it has not ended, or by a signal
  said TEXT NOT NULL DEFAULT ''           -- what it said last
);
