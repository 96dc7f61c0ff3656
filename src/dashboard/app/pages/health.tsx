// How the instance that answers works: its store, clock, disk, configuration and log.
import { call } from "../api/client";
import type { InstanceDetail } from "../api/types";
import { t } from "../text";
import { Exact } from "../ui/exact";
import { Show, useLoaded } from "../ui/loaded";
import { Badge, Field, When } from "../ui/parts";
import { Table } from "../ui/table";
import { bytes, duration, number } from "../view/format";

export function Health() {
  const loaded = useLoaded("health", 3000, (signal) => call("/delay/instance/get", {}, signal));
  return (
    <Show of={loaded}>
      {(detail) => (
        <>
          <Store of={detail} />
          <Operations of={detail} />
          <Configuration of={detail} />
          <Log of={detail} />
        </>
      )}
    </Show>
  );
}

const span = (ms: number | null | undefined) =>
  ms == null ? <span class="quiet">–</span> : duration(ms);

function Store({ of }: { of: InstanceDetail }) {
  const texts = t().health;
  const { disk, servers, clock_offset_ms: offset } = of;
  return (
    <section aria-labelledby="store">
      <h2 id="store">{texts.store}</h2>
      <dl class="fields">
        <Field name={texts.kind}>{t().stores[of.store] ?? of.store}</Field>
        <Field name={texts.clockOffset}>
          {`${offset < 0 ? "−" : ""}${duration(Math.abs(offset))}`}
        </Field>
        <Field name={texts.clockJumps}>{number(of.clock_jumps)}</Field>
        <Field name={texts.settlesPending}>{number(of.settles_pending)}</Field>
        {disk && (
          <>
            <Field name={texts.diskFree}>
              {bytes(disk.free_bytes)}{" "}
              {disk.free_bytes < disk.reserve_bytes && <Badge tone="bad">{texts.diskFull}</Badge>}
            </Field>
            <Field name={texts.diskReserve}>{bytes(disk.reserve_bytes)}</Field>
            <Field name={texts.fsyncP50}>{span(disk.fsync_p50_ms)}</Field>
            <Field name={texts.fsyncP99}>{span(disk.fsync_p99_ms)}</Field>
          </>
        )}
        {servers.map(({ name, away }) => (
          <Field name={texts.server(name)} key={name}>
            <Badge tone={away ? "bad" : "good"}>{away ? texts.away : texts.answers}</Badge>
          </Field>
        ))}
      </dl>
    </section>
  );
}

function Operations({ of: { operations } }: { of: InstanceDetail }) {
  const texts = t().health;
  return (
    <section aria-labelledby="operations">
      <h2 id="operations">{texts.operations}</h2>
      {operations.length === 0 ? (
        <p>{texts.noOperations}</p>
      ) : (
        <Table
          label={texts.operations}
          rows={operations}
          id={({ op }) => op}
          columns={[
            { name: texts.operation, by: ({ op }) => op, cell: ({ op }) => <code>{op}</code> },
            {
              name: texts.calls,
              isNumber: true,
              by: ({ calls }) => calls,
              // The instance remembers 128 of each kind.
              cell: ({ calls }) => `${calls >= 128 ? "≥" : ""}${number(calls)}`,
            },
            { name: texts.p50, isMinor: true, isNumber: true, cell: ({ p50_ms }) => span(p50_ms) },
            {
              name: texts.p99,
              isNumber: true,
              by: ({ p99_ms }) => p99_ms ?? 0,
              cell: ({ p99_ms }) => span(p99_ms),
            },
            {
              name: texts.errors,
              cell: ({ errors }) =>
                errors.map(({ kind, count }) => `${kind} ${number(count)}`).join(", ") || "–",
            },
          ]}
        />
      )}
    </section>
  );
}

function Configuration({ of: { reloads } }: { of: InstanceDetail }) {
  const texts = t().health;
  return (
    <section aria-labelledby="configuration">
      <h2 id="configuration">{texts.configuration}</h2>
      <dl class="fields">
        <Field name={texts.taken}>{number(reloads.taken)}</Field>
        <Field name={texts.refused}>{number(reloads.refused)}</Field>
        <Field name={texts.lastReload}>
          <When at={reloads.last_ms} />{" "}
          {!reloads.in_force && <Badge tone="bad">{texts.notInForce}</Badge>}
        </Field>
      </dl>
      {reloads.error != null && (
        <p class="notice bad">
          <Exact text={reloads.error} />
        </p>
      )}
    </section>
  );
}

function Log({ of: { log } }: { of: InstanceDetail }) {
  const texts = t().health;
  const rows = (log.last ?? []).map((line, at) => ({ ...line, at }));
  return (
    <section aria-labelledby="log">
      <h2 id="log">{texts.log}</h2>
      <p>{texts.logCounts(number(log.errors), number(log.warnings))}</p>
      {rows.length > 0 && (
        <Table
          label={texts.log}
          rows={rows}
          id={({ at_ms, at }) => `${at_ms}-${at}`}
          columns={[
            { name: texts.time, cell: ({ at_ms }) => <When at={at_ms} /> },
            {
              name: texts.level,
              cell: ({ level }) => (
                <Badge tone={level === "error" ? "bad" : "warn"}>
                  {level === "error" ? texts.error : texts.warning}
                </Badge>
              ),
            },
            { name: texts.message, cell: ({ message }) => <Exact text={message} /> },
          ]}
        />
      )}
    </section>
  );
}
