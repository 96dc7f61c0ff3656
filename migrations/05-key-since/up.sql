-- When an add last set the key's task, in Unix ms; 0: before this was noted.
ALTER TABLE task_key ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
