-- Grows while the page is there that runs it.
ALTER TABLE orders ADD COLUMN beat INTEGER NOT NULL DEFAULT 0;
