import { connection, sampleAge } from "../api/live";
import { now } from "../state/clock";
import { who } from "../state/session";
import { t } from "../text";
import { Badge, type Tone } from "../ui/parts";
import { age } from "../view/format";
import { href } from "../state/route";

const TONES: Record<typeof connection.value, Tone> = {
  off: "plain",
  connecting: "plain",
  live: "good",
  lost: "bad",
  hidden: "plain",
};

/** Which service this is, and whether the figures are fresh. */
export function Header({ skip }: { skip: (event: Event) => void }) {
  const service = who.value;
  const sample = sampleAge(now.value);
  return (
    <header class="top">
      <a class="skip" href="#/" onClick={skip}>{t().skip}</a>
      <a class="brand" href={href("")}>
        <img src="docs/icon.svg" alt="" width="26" height="26" />
        <strong>delayd</strong>
      </a>
      {service && (
        <p class="about">
          <span>{service.version}</span>
          <span>{t().instance} <code>{service.instance}</code></span>
          <span>{t().stores[service.store] ?? service.store}</span>
          {service.token != null && <bdi>{t().tokenNamed(service.token)}</bdi>}
        </p>
      )}
      <p class="freshness">
        <Badge tone={TONES[connection.value]}>{t().connection[connection.value]}</Badge>{" "}
        {sample !== null && connection.value !== "off" && (
          <span class="quiet">{t().lastSample(age(sample))}</span>
        )}
      </p>
    </header>
  );
}
