import { useState } from "preact/hooks";
import { call } from "../api/client";
import type { AuditEntry } from "../api/types";
import { href } from "../state/route";
import { t } from "../text";
import { Exact } from "../ui/exact";
import { Show, useLoaded } from "../ui/loaded";
import { Badge, type Tone, When } from "../ui/parts";
import { Table } from "../ui/table";
import { number } from "../view/format";

const PAGE = 50;

const TONES: Record<AuditEntry["result"], Tone> = {
  done: "good",
  refused: "warn",
  failed: "bad",
  unanswered: "warn",
};

/** The audit log, page by page, the newest entry first. */
export function Audit() {
  const [cursor, setCursor] = useState<string | null>(null);
  const loaded = useLoaded(`audit/${cursor}`, 0, (signal) =>
    call("/delay/audit/list", { limit: PAGE, ...(cursor !== null && { cursor }) }, signal),
  );
  const newest = () => (cursor === null ? void loaded.reload() : setCursor(null));
  return (
    <Show of={loaded}>
      {({ entries, cursor: next }) => (
        <>
          {entries.length === 0 ? <p>{t().audit.empty}</p> : <List entries={entries} />}
          <div class="buttons">
            <button type="button" onClick={newest}>{t().audit.newest}</button>
            {next && (
              <button type="button" onClick={() => setCursor(next)}>{t().audit.older}</button>
            )}
          </div>
        </>
      )}
    </Show>
  );
}

function List({ entries }: { entries: AuditEntry[] }) {
  const texts = t().audit;
  const rows = entries.map((entry, at) => ({ ...entry, at }));
  return (
    <Table
      label={t().pages.audit}
      rows={rows}
      id={({ at, at_ms }) => `${at_ms}/${at}`}
      columns={[
        { name: texts.time, cell: ({ at_ms }) => <When at={at_ms} /> },
        { name: texts.action, cell: ({ action }) => <code>{action}</code> },
        { name: texts.target, cell: (entry) => <Target of={entry} /> },
        { name: texts.result, isMinor: true, cell: (entry) => <Result of={entry} /> },
        { name: texts.who, cell: ({ token }) => (token ? <bdi>{token}</bdi> : "–") },
        { name: texts.source, isMinor: true, cell: ({ source }) => texts.sources[source] },
        {
          name: texts.request,
          isMinor: true,
          cell: ({ request_id }) => (request_id ? <code>{request_id}</code> : "–"),
        },
      ]}
    />
  );
}

function Target({ of: { topic, sn, schedule, task_id, tasks, reason } }: { of: AuditEntry }) {
  const id = task_id == null ? null : String(task_id);
  const parts = [
    topic && id === null && <bdi>{topic}</bdi>,
    schedule && topic && (
      <a href={href("schedules", topic, schedule)}>
        <bdi>{schedule}</bdi>
      </a>
    ),
    sn && <Exact text={sn} />,
    id !== null && topic && <a href={href("task", topic, id)}>{`${topic} ${id}`}</a>,
    tasks != null && t().audit.tasks(number(tasks)),
    reason != null && <Exact text={reason} />,
  ].filter(Boolean);
  return parts.length === 0 ? <>–</> : <>{parts.flatMap((part) => [part, " "])}</>;
}

function Result({ of: { result, status, dm_error, dry_run, unrecorded } }: { of: AuditEntry }) {
  const texts = t().audit;
  return (
    <>
      <Badge tone={TONES[result]}>{texts.results[result]}</Badge>{" "}
      {status != null && <span class="quiet">{status}</span>}{" "}
      {dm_error != null && <span class="quiet">{`dm_error ${dm_error}`}</span>}{" "}
      {dry_run && <Badge tone="plain">{texts.dryRun}</Badge>}{" "}
      {unrecorded != null && unrecorded > 0 && (
        <span class="quiet">{texts.unrecorded(number(unrecorded))}</span>
      )}
    </>
  );
}
