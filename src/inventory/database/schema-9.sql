-- Verdicts of advisories have the names that rules and events use.
UPDATE findings SET verdict = 'affected' WHERE verdict = 'vulnerable';
UPDATE findings SET verdict = 'fixed' WHERE verdict = 'mended';
