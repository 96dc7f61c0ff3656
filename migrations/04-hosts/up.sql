-- A destination whose number is 2^40 or above is deleted with its last task: the hosts of callers' URLs, of which there may be any
-- number. Services have numbers below and stay, so that their tasks need no entry in this index.

DELETE FROM destination WHERE instr(name, ':') > 0
    AND id NOT IN (SELECT destination FROM task) AND id NOT IN (SELECT destination FROM schedule);

UPDATE task SET destination = destination + 1099511627776
    WHERE destination IN (SELECT id FROM destination WHERE instr(name, ':') > 0);
UPDATE schedule SET destination = destination + 1099511627776
    WHERE destination IN (SELECT id FROM destination WHERE instr(name, ':') > 0);
UPDATE progress SET destination = destination + 1099511627776
    WHERE destination IN (SELECT id FROM destination WHERE instr(name, ':') > 0);
UPDATE destination SET id = id + 1099511627776 WHERE instr(name, ':') > 0;

CREATE INDEX task_by_host ON task (destination) WHERE destination >= 1099511627776;
