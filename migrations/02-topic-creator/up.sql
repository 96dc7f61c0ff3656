-- The name of the token that created the topic, or null.
ALTER TABLE topic ADD COLUMN created_by TEXT;

CREATE INDEX topic_by_creator ON topic (created_by) WHERE created_by IS NOT NULL;
