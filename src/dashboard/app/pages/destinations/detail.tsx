import { call } from "../../api/client";
import type { AnswerOf } from "../../api/types";
import { hrefWith } from "../../state/route";
import { t } from "../../text";
import { Exact } from "../../ui/exact";
import { Show, useLoaded } from "../../ui/loaded";
import { Ago, Field, When } from "../../ui/parts";
import { Table } from "../../ui/table";
import { count, duration, number, percent } from "../../view/format";
import { Changes } from "./changes";
import { Breaker, Each, isTroubled, LastError, State, Unharmed } from "./parts";

type Detail = AnswerOf<"/delay/destination/get">;

/** All that the instance which answers knows about one destination. */
export function DestinationDetail({ sn }: { sn: string }) {
  const loaded = useLoaded(sn, 3000, (signal) => call("/delay/destination/get", { sn }, signal));
  return (
    <Show of={loaded}>
      {(detail) => (
        <>
          <p class="state">
            <State of={detail} />
          </p>
          {isTroubled(detail) && <Unharmed of={detail.unharmed} />}
          <Changes of={detail} reload={loaded.reload} />
          <Links sn={sn} />
          <Now of={detail} />
          <Each of={detail.instances} />
          <Recent of={detail} />
          <Transitions of={detail} />
          <p class="quiet small-text">{t().destinations.detailNote}</p>
        </>
      )}
    </Show>
  );
}

/** A topic's tasks are searched: which topics have tasks of a destination is not known. */
const Links = ({ sn }: { sn: string }) => (
  <p>
    <a href={hrefWith({ by: "sn", q: sn }, "tasks")}>{t().destinations.waitingTasks}</a>{" · "}
    <a href={hrefWith({ by: "sn", q: sn, state: "dead" }, "tasks")}>
      {t().destinations.deadTasks}
    </a>
  </p>
);

const span = (ms: number | null | undefined) =>
  ms == null ? <span class="quiet">–</span> : duration(ms);

function Now({ of }: { of: Detail }) {
  const texts = t().destinations;
  const isLower = !of.complete || of.cut;
  return (
    <section aria-labelledby="now">
      <h2 id="now">{texts.now}</h2>
      <dl class="fields">
        <Field name={texts.breaker}><Breaker of={of.breaker} /></Field>
        {of.probes_in_ms != null && (
          <Field name={texts.probesIn}>{duration(of.probes_in_ms)}</Field>
        )}
        {of.no_access_token != null && (
          <Field name={texts.noTokenWhy}><Exact text={of.no_access_token} /></Field>
        )}
        <Field name={texts.retryAfterLeft}>{span(of.retry_after_ms)}</Field>
        <Field name={texts.inFlight}>
          {texts.ofLimit(number(of.in_flight), number(of.concurrency))}
        </Field>
        <Field name={texts.slots}>{number(of.slots)}</Field>
        <Field name={texts.rate}>{of.rate ?? "–"}</Field>
        {of.success != null && <Field name={texts.success}><code>{of.success}</code></Field>}
        <Field name={texts.waiting}>{count(of.waiting, isLower)}</Field>
        <Field name={texts.overdue}>{count(of.overdue, isLower)}</Field>
        {of.as_of_ms > 0 && <Field name={texts.counted}><Ago at={of.as_of_ms} /></Field>}
      </dl>
    </section>
  );
}

function Recent({ of }: { of: Detail }) {
  const texts = t().destinations;
  const { calls, failures, p50_ms, p99_ms } = of.recent;
  return (
    <section aria-labelledby="recent">
      <h2 id="recent">{texts.recent}</h2>
      {calls === 0 && <p>{texts.noCalls}</p>}
      <dl class="fields">
        {calls > 0 && (
          <>
            <Field name={texts.calls}>{number(calls)}</Field>
            <Field name={texts.failures}>
              {texts.share(number(failures), percent(failures / calls, 1))}
            </Field>
            <Field name={texts.p50}>{span(p50_ms)}</Field>
            <Field name={texts.p99}>{span(p99_ms)}</Field>
          </>
        )}
        <Field name={texts.lastError}><LastError of={of} /></Field>
      </dl>
    </section>
  );
}

/** The changes of the circuit breaker, the newest first. */
function Transitions({ of: { transitions } }: { of: Detail }) {
  const texts = t().destinations;
  const rows = transitions.map((change, at) => ({ ...change, at })).reverse();
  return (
    <section aria-labelledby="transitions">
      <h2 id="transitions">{texts.transitions}</h2>
      {rows.length === 0 ? (
        <p>{texts.noTransitions}</p>
      ) : (
        <Table
          label={texts.transitions}
          rows={rows}
          id={({ at_ms, at }) => `${at_ms}-${at}`}
          columns={[
            { name: texts.time, cell: ({ at_ms }) => <When at={at_ms} /> },
            { name: texts.breaker, cell: ({ to }) => <Breaker of={to} /> },
          ]}
        />
      )}
    </section>
  );
}
