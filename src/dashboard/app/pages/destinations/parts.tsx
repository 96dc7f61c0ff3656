// What the list and the page of a destination both show.
import type { AnswerOf, Destination } from "../../api/types";
import { href } from "../../state/route";
import { t } from "../../text";
import { Exact } from "../../ui/exact";
import { Ago, Badge, type Tone } from "../../ui/parts";
import { Table } from "../../ui/table";
import { duration, number, percent } from "../../view/format";

/** The fields that the list and the page have. */
export type Shown = Pick<
  Destination,
  | "sn"
  | "held"
  | "configured"
  | "breaker"
  | "retry_after_ms"
  | "no_access_token"
  | "last_error"
  | "last_error_ms"
>;

/** The fields that its state follows from. A forecast has no calls in flight. */
type Stated = Pick<
  Destination,
  "held" | "configured" | "breaker" | "retry_after_ms" | "no_access_token"
> &
  Partial<Pick<Destination, "in_flight" | "concurrency">>;

/** Whether something keeps it from being called as usual. */
export const isTroubled = ({ held, breaker, no_access_token }: Shown) =>
  held || breaker !== "closed" || no_access_token != null;

/** How a state of a circuit breaker is shown. */
const breakerTone = (state: Destination["breaker"]): Tone =>
  ({ closed: "good", half_open: "warn", open: "bad" })[state] as Tone;

export const Breaker = ({ of }: { of: Destination["breaker"] }) => (
  <Badge tone={breakerTone(of)}>{t().breakers[of]}</Badge>
);

export const DestinationLink = ({ sn }: { sn: string }) => (
  <a href={href("destinations", sn)}>
    <bdi>{sn}</bdi>
  </a>
);

/** What keeps it from being called as usual, the worst first. */
function conditionsOf(of: Stated): [Tone, string][] {
  const texts = t().destinations;
  const { breaker, retry_after_ms } = of;
  const all: [boolean, Tone, string][] = [
    [!of.configured, "bad", texts.unconfigured],
    [of.no_access_token != null, "bad", texts.noToken],
    [breaker === "open", "bad", texts.failing],
    [of.held, "warn", texts.held],
    [retry_after_ms != null, "warn", texts.retryAfter(duration(retry_after_ms ?? 0))],
    [breaker === "half_open", "warn", texts.probing],
    [(of.in_flight ?? 0) >= (of.concurrency ?? Infinity), "warn", texts.busy],
  ];
  return all.flatMap(([holds, tone, text]) => (holds ? [[tone, text] as [Tone, string]] : []));
}

export const isReady = (of: Stated) => conditionsOf(of).length === 0;

/** It is ready only if nothing keeps it from being called. */
export function State({ of }: { of: Stated }) {
  const found = conditionsOf(of);
  const shown: [Tone, string][] = found.length > 0 ? found : [["good", t().destinations.ready]];
  return (
    <>
      {shown.map(([tone, text]) => (
        <>
          <Badge tone={tone}>{text}</Badge>{" "}
        </>
      ))}
    </>
  );
}

type OnInstance = Destination["instances"][number];

/** The instances on which something keeps it from being called, if others call it. */
export function Where({ of }: { of: Pick<Destination, "instances"> }) {
  const isWell = (one: OnInstance) => isReady({ ...one, configured: true, held: false });
  const ill = of.instances.filter((one) => !isWell(one));
  if (ill.length === 0) return null;
  return (
    <span class="quiet">
      {t().destinations.on(ill.map(({ name, instance }) => `${name} ${instance}`).join(", "))}
    </span>
  );
}

/** Its state on each instance, if there are several. */
export function Each({ of }: { of: OnInstance[] }) {
  const texts = t().destinations;
  const dash = <span class="quiet">–</span>;
  const left = (ms: number | null | undefined) => (ms == null ? dash : duration(ms));
  if (of.length === 0) return null;
  return (
    <section aria-labelledby="each">
      <h2 id="each">{texts.each}</h2>
      <Table
        label={texts.each}
        rows={of}
        id={({ instance }) => instance}
        columns={[
          {
            name: t().system.id,
            cell: ({ instance, name, answers }) => (
              <>
                <code>{instance}</code> <bdi>{name}</bdi>{" "}
                {answers && <Badge tone="plain">{t().system.answers}</Badge>}
              </>
            ),
          },
          { name: texts.breaker, cell: ({ breaker }) => <Breaker of={breaker} /> },
          { name: texts.probesIn, cell: ({ probes_in_ms }) => left(probes_in_ms) },
          {
            name: texts.inFlight,
            isMinor: true,
            isNumber: true,
            cell: ({ in_flight, concurrency }) =>
              texts.ofLimit(number(in_flight), number(concurrency)),
          },
          { name: texts.rate, isMinor: true, cell: ({ rate }) => rate ?? dash },
          {
            name: texts.retryAfterLeft,
            isMinor: true,
            cell: ({ retry_after_ms }) => left(retry_after_ms),
          },
          {
            name: texts.failures,
            isMinor: true,
            isNumber: true,
            cell: ({ recent: { calls, failures } }) =>
              calls === 0 ? dash : texts.share(number(failures), percent(failures / calls, 1)),
          },
          {
            name: texts.lastError,
            isMinor: true,
            cell: (one) => <LastError of={one} />,
          },
          {
            name: texts.probed,
            isMinor: true,
            cell: ({ probed_ms }) => (probed_ms == null ? dash : <Ago at={probed_ms} />),
          },
          { name: t().system.seen, cell: ({ seen_ms }) => <Ago at={seen_ms} /> },
        ]}
      />
      <p class="quiet small-text">{texts.eachNote}</p>
    </section>
  );
}

interface Failed {
  of: Pick<Destination, "last_error" | "last_error_ms">;
}

export function LastError({ of: { last_error, last_error_ms } }: Failed) {
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

/** The preset of the objective of lateness, in ms. */
const LATE = 1000;

/** Whether the trouble of a destination delays the calls of the others. */
export function Unharmed({ of }: { of: AnswerOf<"/delay/destination/list">["unharmed"] }) {
  const texts = t().destinations;
  const { calls, lateness_p99_ms } = of;
  const isLate = (lateness_p99_ms ?? 0) > LATE;
  return (
    <p class={isLate ? "notice warn" : "notice"} data-unharmed>
      {lateness_p99_ms == null
        ? texts.othersIdle
        : (isLate ? texts.othersLate : texts.unharmed)(duration(lateness_p99_ms), number(calls))}
    </p>
  );
}
