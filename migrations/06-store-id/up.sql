-- The id of this store, 64 random bits. The `webhook-id` of its tasks begins with it, so that no other store has the same ones.
INSERT INTO meta (name, value) VALUES ('store_id', random());
