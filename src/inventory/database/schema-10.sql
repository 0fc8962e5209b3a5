-- The page submits its scans to the queue of scans.
DROP TABLE orders;
DROP TABLE schedules;
