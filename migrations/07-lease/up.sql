-- Who holds a leased task: 1 a worker, 2 a consumer, 3 a receiver that acknowledges later, 4 a mover. Kept when a lease is swept.
ALTER TABLE progress ADD COLUMN lease INTEGER;
-- What a task that a mover holds waits for again if it comes back.
ALTER TABLE progress ADD COLUMN returns INTEGER;
