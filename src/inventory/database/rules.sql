INSERT INTO rules (rule, title, severity, services, gone, count, blocked, first_seen, last_seen)
SELECT rule, max(title), max(severity), CAST(sum(told) AS INTEGER), CAST(count(*) - sum(told) AS INTEGER),
  CAST(sum(count) AS INTEGER), CAST(sum(blocked) AS INTEGER), min(first_seen), max(last_seen)
FROM (SELECT rule, service, max(title) AS title, max(severity) AS severity,
        max(CASE WHEN state = 'open' THEN 1 ELSE 0 END) AS told, CAST(sum(count) AS INTEGER) AS count,
        CAST(sum(blocked) AS INTEGER) AS blocked, min(first_seen) AS first_seen, max(last_seen) AS last_seen
      FROM findings GROUP BY rule, service) told
GROUP BY rule
