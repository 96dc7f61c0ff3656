// What the list and the page of a destination both show.
import type { AnswerOf, Destination } from "../../api/types";
import { href } from "../../state/route";
import { t } from "../../text";
import { Exact } from "../../ui/exact";
import { Ago, Badge, type Tone } from "../../ui/parts";
import { duration, number } from "../../view/format";

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

/** The fields that its state follows from. The overview has no `retry_after_ms`. */
type Stated = Pick<
  Destination,
  "held" | "configured" | "breaker" | "in_flight" | "concurrency" | "no_access_token"
> & { retry_after_ms?: number | null };

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
    [of.in_flight >= of.concurrency, "warn", texts.busy],
  ];
  return all.flatMap(([holds, tone, text]) => (holds ? [[tone, text] as [Tone, string]] : []));
}

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

export function LastError({ of: { last_error, last_error_ms } }: { of: Shown }) {
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
