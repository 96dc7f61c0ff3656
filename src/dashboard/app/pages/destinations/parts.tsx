// What the list and the page of a destination both show.
import type { Destination } from "../../api/types";
import { href } from "../../state/route";
import { t } from "../../text";
import { Exact } from "../../ui/exact";
import { Ago, Badge, type Tone } from "../../ui/parts";
import { duration } from "../../view/format";

/** The fields that the list and the page have. */
export type Shown = Pick<
  Destination,
  "sn" | "held" | "configured" | "breaker" | "retry_after_ms" | "last_error" | "last_error_ms"
>;

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

export function State({ of: { held, configured, retry_after_ms } }: { of: Shown }) {
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
