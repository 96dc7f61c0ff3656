import { call } from "../api/client";
import type { Destination } from "../api/types";
import { ask } from "../state/dialog";
import { may } from "../state/session";
import { t } from "../text";
import { Exact } from "../ui/exact";
import { Show, useLoaded } from "../ui/loaded";
import { Ago, Badge, type Tone } from "../ui/parts";
import { Table } from "../ui/table";
import { duration, number } from "../view/format";

/** How a state of a circuit breaker is shown. */
export const breakerTone = (state: Destination["breaker"]): Tone =>
  ({ closed: "good", half_open: "warn", open: "bad" })[state] as Tone;

/** All destinations, with holds. */
export function Destinations() {
  const loaded = useLoaded("destinations", 3000, (signal) =>
    call("/delay/destination/list", {}, signal),
  );
  return (
    <Show of={loaded}>
      {({ destinations }) => <List destinations={destinations} reload={loaded.reload} />}
    </Show>
  );
}

interface ListProps {
  destinations: Destination[];
  reload: () => Promise<void>;
}

function List({ destinations, reload }: ListProps) {
  const texts = t().destinations;
  if (destinations.length === 0) return <p>{texts.empty}</p>;
  return (
    <>
      <Table
        label={t().pages.destinations}
        rows={destinations}
        id={({ sn }) => sn}
        columns={[
          { name: texts.destination, by: ({ sn }) => sn, cell: ({ sn }) => <bdi>{sn}</bdi> },
          { name: texts.state, cell: (destination) => <State of={destination} /> },
          {
            name: texts.waiting,
            isNumber: true,
            by: ({ waiting }) => waiting,
            cell: ({ waiting }) => number(waiting),
          },
          {
            name: texts.breaker,
            by: ({ breaker }) => breaker,
            cell: ({ breaker }) => (
              <Badge tone={breakerTone(breaker)}>{t().breakers[breaker]}</Badge>
            ),
          },
          {
            name: texts.inFlight,
            isNumber: true,
            by: ({ in_flight }) => in_flight,
            cell: ({ in_flight, concurrency }) =>
              texts.ofLimit(number(in_flight), number(concurrency)),
          },
          { name: texts.rate, cell: ({ rate }) => rate ?? "–" },
          { name: texts.lastError, cell: (destination) => <LastError of={destination} /> },
          {
            name: texts.action,
            cell: (destination) =>
              may.changeDestinations() && <Change of={destination} reload={reload} />,
          },
        ]}
      />
      <p class="quiet small-text">{texts.note}</p>
    </>
  );
}

function State({ of: { held, configured, retry_after_ms } }: { of: Destination }) {
  const texts = t().destinations;
  const isReady = !held && configured && retry_after_ms == null;
  return (
    <>
      {held && <Badge tone="warn">{texts.held}</Badge>}{" "}
      {!configured && <Badge tone="bad">{texts.unconfigured}</Badge>}{" "}
      {retry_after_ms != null && (
        <Badge tone="warn">{texts.retryAfter(duration(retry_after_ms))}</Badge>
      )}
      {isReady && <Badge tone="good">{texts.ready}</Badge>}
    </>
  );
}

function LastError({ of: { last_error, last_error_ms } }: { of: Destination }) {
  if (last_error_ms == null) return <span class="quiet">–</span>;
  return (
    <>
      {last_error != null && <Exact text={last_error} />}{" "}
      <span class="quiet">
        <Ago at={last_error_ms} />
      </span>
    </>
  );
}

interface ChangeProps {
  of: Destination;
  reload: () => Promise<void>;
}

function Change({ of: { sn, held, retry_after_ms }, reload }: ChangeProps) {
  const texts = t().destinations;
  const release = {
    title: texts.releaseTitle(sn),
    text: texts.releaseText,
    action: texts.release,
    run: () => call("/delay/destination/release", { sn }).then(reload),
  };
  const hold = {
    title: texts.holdTitle(sn),
    text: texts.holdText,
    action: texts.hold,
    run: () => call("/delay/destination/hold", { sn }).then(reload),
  };
  const questions = [
    ...(held ? [] : [hold]),
    ...(held || retry_after_ms != null ? [release] : []),
  ];
  return (
    <div class="buttons">
      {questions.map((question) => (
        <button
          type="button"
          class="small"
          aria-label={`${question.action} ${sn}`}
          onClick={() => ask(question)}
        >
          {question.action}
        </button>
      ))}
    </div>
  );
}
