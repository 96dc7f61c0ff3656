-- Destinations that are held by hand: none of their tasks is claimed until they are released.
CREATE TABLE hold (
    destination TEXT PRIMARY KEY,
    since       INTEGER NOT NULL  -- Unix ms
) STRICT, WITHOUT ROWID;
